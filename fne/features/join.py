"""Joining stores of activations: the layers of several networks side by side, as one store.

The new store has the columns of all sources, in their order, and the rows of the ids that all of them have.
Every source is recorded in its settings with its digest, settings and lineage.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from fne.core.errors import InputError
from fne.core.files import read_bytes
from fne.core.progress import tracked
from fne.features.embed import refuse_without_rows
from fne.features.statistics import check_finite
from fne.store.artifact import Lineage, is_sealed
from fne.store.layout import MANIFEST, Layer, plan_shards
from fne.store.rows import Rows, write_rows

SHARD = 1 << 26  # bytes: several times this is in memory while a shard is written


def join_stores(sources: Sequence[Path], store: Path, common: bool = False) -> Rows:
    """Write the layers of several stores of activations side by side, one shard in memory at a time.

    Args:
        sources: the folders of at least two stores.
        store: the folder of the new one; see `check_destination`.
        common: keep the ids that all sources have, where otherwise a missing id is an error.

    Returns:
        The new store.

    Raises:
        InputError: if a source lacks ids, if none are in common, if two sources were made from different
            image files, or if a value is not finite.
    """
    if len(sources) < 2:
        raise InputError(f"expected at least two stores to join, got {len(sources)}")
    for source in sources:
        if source.resolve() == store.resolve():
            raise InputError(f"{store}: is one of the stores to join; choose another folder with --to")
    opened = [Rows.open(source, "activations") for source in sources]
    for rows in opened:
        refuse_without_rows(rows)
    ids = common_ids(opened, common)
    layers = joined_layers(opened)
    dtype = np.result_type(*(np.dtype(rows.dtype) for rows in opened)).name
    columns = [[layer.name for layer in each] for each in layers]
    settings = {
        "joined": [
            {
                "store": rows.artifact.path.name,
                "digest": rows.artifact.digest,
                "layers": names,
                "settings": rows.artifact.settings,
                "lineage": rows.artifact.lineage,
            }
            for rows, names in zip(opened, columns, strict=True)
        ]
    }
    shards = _joined_shards(opened, ids, dtype, store)
    flat = [layer for each in layers for layer in each]
    write_rows(store, "activations", flat, dtype, shards, settings, common_lineage(opened))
    return Rows.open(store, "activations")


def common_ids(stores: Sequence[Rows], common: bool) -> list[str]:
    """Return the ids that all stores have, sorted.

    Raises:
        InputError: if a store lacks an id of another and `common` is false, or if there are no common ids.
    """
    sets = [set(rows.ids) for rows in stores]
    everything, shared = set.union(*sets), set.intersection(*sets)
    if not shared:
        raise InputError(f"{_listing(stores)}: have no id in common")
    for rows, own in zip(stores, sets, strict=True):
        missing = sorted(everything - own)
        if missing and not common:
            raise InputError(
                f"{rows.artifact.path}: lacks {len(missing)} of the {len(everything)} ids of all stores, the "
                f"first is {missing[0]!r}; join the {len(shared)} ids that all have with --common"
            )
    return sorted(shared)


def joined_layers(stores: Sequence[Rows]) -> list[list[Layer]]:
    """Return the layers of each store; a name that several stores have gets the prefix `FOLDER.`.

    Folders of the same name get their number among the stores.
    """
    counts = Counter(layer.name for rows in stores for layer in rows.layers)
    folders = [rows.artifact.path.name for rows in stores]
    prefixes = [
        f"{folder}{number}" if folders.count(folder) > 1 else folder
        for number, folder in enumerate(folders, start=1)
    ]
    return [
        [
            Layer(f"{prefix}.{layer.name}" if counts[layer.name] > 1 else layer.name, layer.features)
            for layer in rows.layers
        ]
        for prefix, rows in zip(prefixes, stores, strict=True)
    ]


def common_lineage(stores: Sequence[Rows]) -> Lineage:
    """Return the ancestors on which all stores agree that have them, such as the image files.

    The others, such as the weights of different networks, are in the settings of the joined store only.

    Raises:
        InputError: if two stores were made from different image files.
    """
    lineages = [rows.artifact.lineage for rows in stores]
    made_from = [
        (rows.artifact.path, rows.artifact.lineage["images"]["digest"])
        for rows in stores
        if "images" in rows.artifact.lineage
    ]
    for path, digest in made_from[1:]:
        first, expected = made_from[0]
        if digest != expected:
            raise InputError(
                f"{first} was made from images {expected[:12]}…, but {path} was made from images "
                f"{digest[:12]}…; join stores of the same images"
            )
    agreed: Lineage = {}
    for name in sorted(set().union(*lineages)):
        entries = [lineage[name] for lineage in lineages if name in lineage]
        if len({entry["digest"] for entry in entries}) == 1:
            agreed[name] = entries[0]
    return agreed


def check_destination(store: Path, name: str = "activations") -> None:
    """Refuse a folder that is not a store of this project, since writing a store replaces the folder.

    Args:
        store: the folder.
        name: the artifact that it may hold.

    Raises:
        InputError: if anything but an intact store is there, or a store with other files in its folder.
    """
    if not store.exists() and not store.is_symlink():
        return
    hint = "choose another folder with --to, or remove it"
    try:
        expected = {MANIFEST, *(shard.file for shard in Rows.open(store, name).shards)}
        sealed = is_sealed(read_bytes(store / MANIFEST))
    except InputError:
        sealed = False
    if not sealed:
        raise InputError(
            f"{store}: exists and is not an intact row store of {name.replace('_', ' ')}; {hint}"
        )
    others = sorted(file.name for file in store.iterdir() if file.name not in expected or not file.is_file())
    if others:
        raise InputError(f"{store}: holds other files beside the store, the first is {others[0]!r}; {hint}")


def _joined_shards(
    stores: Sequence[Rows], ids: Sequence[str], dtype: str, store: Path
) -> Iterator[tuple[int, list[str], np.ndarray]]:
    size = len(ids) * sum(rows.features for rows in stores) * np.dtype(dtype).itemsize
    plan = plan_shards(ids, -(-size // SHARD))
    for number, chosen in tracked(plan.items(), "join", len(plan), "shard"):
        parts = []
        for rows in stores:
            block = rows.read(chosen)
            check_finite(rows, chosen, block)
            parts.append(block.astype(dtype, copy=False))
        yield number, chosen, np.concatenate(parts, axis=1)
    check_destination(store)  # again: reading may have taken long


def _listing(stores: Sequence[Rows]) -> str:
    return ", ".join(str(rows.artifact.path) for rows in stores)
