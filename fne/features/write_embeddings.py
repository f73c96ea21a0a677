"""Making a store of embeddings from a store of activations, the one that `embed.source` names.

A ternary embedding also records, for each layer, the fractions of -1, 0 and +1 among its values, and of
features that do not vary among the training images (`dead`).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fne.core.errors import InputError
from fne.core.progress import progress
from fne.features.embeddings import Embedding
from fne.features.standardize import check_finite
from fne.store.artifact import Artifact, Lineage, Sections
from fne.store.layout import Layer
from fne.store.rows import Rows, write_rows

# The store that the pipeline extracts; any other was imported or joined.
EXTRACTED = "features/activations"
REPRO = "run `dvc repro`"
SAME_FILES = "have the same files under the same names below catalog.root, or set catalog.images to none"
DIGITS = 4  # decimals of the fractions


def fractions_by_layer(
    layers: Sequence[Layer], varies: np.ndarray, minus: np.ndarray, plus: np.ndarray, rows: int
) -> dict[str, dict[str, float]]:
    """Return, by layer, the fractions `minus`, `zero` and `plus` of its values, and `dead` of its features.

    `minus` and `plus` count such values of each feature in so many rows.
    """
    fractions, start = {}, 0
    for layer in layers:
        columns = slice(start, start + layer.features)
        values = max(1, layer.features * rows)
        below, above = (int(counts[columns].sum()) / values for counts in (minus, plus))
        dead = 1 - int(varies[columns].sum()) / max(1, layer.features)
        found = {"minus": below, "zero": 1 - below - above, "plus": above, "dead": dead}
        fractions[layer.name] = {name: round(value, DIGITS) for name, value in found.items()}
        start += layer.features
    return fractions


def format_fractions(settings: Mapping[str, Any]) -> list[str]:
    """Return the fractions in the settings of embeddings as lines of a table; no lines if there are none.

    Example:
        >>> fractions = {"fc7": {"minus": 0.4, "zero": 0.25, "plus": 0.35, "dead": 0.0}}
        >>> format_fractions({"shares": fractions})
        ['layer     -1      0     +1   dead', 'fc7    40.0%  25.0%  35.0%   0.0%']
    """
    fractions = settings.get("shares", {})
    if not fractions:
        return []
    width = max(len("layer"), *map(len, fractions))
    titles = "".join(f"{title:>7}" for title in ("-1", "0", "+1", "dead"))
    return [
        f"{'layer':<{width}}{titles}",
        *(
            f"{layer:<{width}}" + "".join(f"{value:>7.1%}" for value in each.values())
            for layer, each in fractions.items()
        ),
    ]


def open_source(path: Path, images: Sequence[str] = (), files: Artifact | None = None) -> Rows:
    """Open a store of activations: extracted, imported or joined.

    Args:
        images: the ids that it must have.
        files: the catalog's image files, from which the store must have been made if it records that.
    """
    rows = Rows.open(path, "activations")
    refuse_without_rows(rows)
    if not rows.ids:
        raise InputError(
            f"{path}: holds no images, as with catalog.images 'none'; import their features with "
            "`fne import FILE` and name the new folder with `-S embed.source=FOLDER`"
        )
    known = set(rows.ids)
    missing = [each for each in images if each not in known]
    if missing:
        remedy = REPRO if path == Path(EXTRACTED) else "import features of all of them"
        raise InputError(
            f"{path}: lacks {len(missing)} of the catalog's {len(images)} images, "
            f"the first is {missing[0]!r}; {remedy}"
        )
    made_from = rows.artifact.lineage.get("images")
    if files and made_from and made_from["digest"] != files.digest:
        remedy = REPRO if path == Path(EXTRACTED) else SAME_FILES
        raise InputError(
            f"{path} was made from images {made_from['digest'][:12]}…, but "
            f"{files.path} holds images {files.digest[:12]}…; {remedy}"
        )
    return rows


def refuse_without_rows(rows: Rows) -> None:
    """Refuse a store whose rows were not computed."""
    if rows.without_rows is not None:
        raise InputError(
            f"{rows.artifact.path}: has no rows, because {rows.without_rows} when it was made; run "
            f"`dvc repro extract` with embed.source: {EXTRACTED}, finished rows are kept"
        )


def write_embeddings(
    path: Path,
    activations: Rows,
    embedding: Embedding,
    settings: dict[str, Any],
    lineage: Lineage,
    ids: Collection[str] | None = None,
    name: str = "embeddings",
) -> dict[str, Any]:
    """Embed the rows of a store of activations; return the settings with found thresholds and fractions.

    With the name `caption_embeddings`, they are rows of captions.
    """
    section, unit = ("embed", "image") if name == "embeddings" else ("embed_text", "caption")
    recorded = settings | embedding.found
    shards = _embed_shards(activations, embedding, recorded, activations.ids if ids is None else ids, unit)
    made_in: Sections = {section: {}}  # the store that it reads is in the lineage
    layers, dtype = embedding.layers, embedding.dtype
    write_rows(path, name, layers, dtype, shards, recorded, lineage, sections=made_in)
    return recorded


def _embed_shards(
    activations: Rows, embedding: Embedding, recorded: dict[str, Any], wanted: Collection[str], unit: str
) -> Iterator[tuple[int, list[str], np.ndarray]]:
    """Yield the number, ids and embeddings of each shard of the activations.

    The fractions are known after the last shard, and added to the settings before the manifest is written.
    """
    known, seen = frozenset(wanted), 0
    minus, plus = np.zeros((2, sum(layer.features for layer in embedding.layers)), np.int64)
    with progress("embed", len(known), unit=unit) as shown:
        for number, listed in activations.plan().items():
            ids = [row_id for row_id in listed if row_id in known]
            if not ids:
                continue
            parts = []
            for chosen, block in activations.blocks(ids):
                check_finite(activations, chosen, block)
                parts.append(embedding.transform(block))
                shown.update(len(chosen))
            rows = np.concatenate(parts)
            if embedding.varies is not None:
                seen += len(rows)
                minus += np.count_nonzero(rows < 0, axis=0)
                plus += np.count_nonzero(rows > 0, axis=0)
            yield number, ids, rows
    if embedding.varies is not None:
        recorded["shares"] = fractions_by_layer(embedding.layers, embedding.varies, minus, plus, seen)
