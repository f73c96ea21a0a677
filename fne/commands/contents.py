"""The full check of one artifact by itself; `fne.commands.verify` holds it against the others.

Every check is called as `check(path, done)`, where `done` is told the bytes it has seen, and
returns what it found. It raises `InputError` where nothing can be read at all.
"""

import csv
import json
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fne.captions.vocabulary import read_vocabulary
from fne.commands.kinds import HISTORY, STORE
from fne.core.errors import InputError
from fne.datasets.rejects import COLUMNS
from fne.matching.modelfile import read_model
from fne.report.history import read_history
from fne.store.arrays import Arrays, read_arrays
from fne.store.catalog import read_captions, read_images
from fne.store.layout import MANIFEST
from fne.store.lineage import Artifact
from fne.store.rows import Rows
from fne.store.values import value_fault

Done = Callable[[int], object]


@dataclass(frozen=True)
class Contents:
    """What an artifact says about itself, the ids it holds, and what is wrong with it."""

    artifact: Artifact | None = None
    image_ids: list[str] | None = None
    caption_ids: list[str] | None = None
    faults: list[str] = field(default_factory=list)


def _rows(path: Path, done: Done) -> Contents:
    rows = Rows.open(path)
    faults = []
    for number, shard in enumerate(rows.shards):
        try:
            block = rows.verified_block(number)
            fault = value_fault(block, rows.dtype, shard.ids, rows.layers)
            if fault:
                faults.append(f"{path / shard.file}: {fault}")
            done(block.nbytes)
        except InputError as error:
            faults.append(error.message)
    files = {MANIFEST, *(shard.file for shard in rows.shards)}
    foreign = sorted({each.name for each in path.iterdir()} - files)
    faults += [f"{path}: '{name}' is no part of the store" for name in foreign]
    faults += _twice(path, rows.ids)
    if rows.artifact.name == "caption_vectors":
        return Contents(rows.artifact, caption_ids=rows.ids, faults=faults)
    return Contents(rows.artifact, image_ids=rows.ids, faults=faults)


def _images(path: Path, done: Done) -> Contents:
    images, artifact = read_images(path)
    ids = [image.id for image in images]
    return Contents(artifact, image_ids=ids, faults=_twice(path, ids))


def _captions(path: Path, done: Done) -> Contents:
    captioned, artifact = read_captions(path)
    ids = [record.id for record in captioned]
    return Contents(artifact, image_ids=ids, faults=_twice(path, ids))


def _arrays(path: Path, done: Done) -> Contents:
    arrays = read_arrays(path)
    faults = _not_finite(path, arrays.values)
    check = ARRAYS.get(arrays.artifact.name)
    ids = arrays.texts("ids") if arrays.artifact.name == "tokens" else None
    return Contents(arrays.artifact, caption_ids=ids, faults=faults + (check(path, arrays) if check else []))


def _model(path: Path, done: Done) -> Contents:
    matcher, artifact = read_model(path)
    state = {name: value.numpy() for name, value in matcher.state_dict().items()}
    return Contents(artifact, faults=_not_finite(path, state))


def _vocabulary(path: Path, done: Done) -> Contents:
    vocabulary = read_vocabulary(path)
    return Contents(vocabulary.artifact, faults=_twice(path, vocabulary.words))


def _rejects(path: Path, done: Done) -> Contents:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file, strict=True))
    except (ValueError, csv.Error) as error:
        raise InputError(f"{path}: not a table of rejects ({error})") from None
    whole = rows[:1] == [list(COLUMNS)] and all(len(row) == len(COLUMNS) for row in rows)
    return Contents(faults=[] if whole else [f"{path}: expected the columns {', '.join(COLUMNS)}"])


def _history(path: Path, done: Done) -> Contents:
    read_history(path)
    return _json(path / "metrics.json", done)


def _json(path: Path, done: Done) -> Contents:
    try:
        json.loads(path.read_bytes(), parse_constant=_refuse)
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: not valid JSON ({error})") from None
    return Contents()


def _page(path: Path, done: Done) -> Contents:
    content = path.read_bytes().strip().lower()
    whole = content.startswith(b"<!doctype html>") and content.endswith(b"</html>")
    return Contents(faults=[] if whole else [f"{path}: not a whole HTML page"])


def _twice(path: Path, ids: list[str]) -> list[str]:
    twice = [each for each, count in Counter(ids).items() if count > 1]
    return [f"{path}: has {len(twice)} ids more than once, the first is {twice[0]!r}"] if twice else []


def _not_finite(path: Path, values: Mapping[str, np.ndarray]) -> list[str]:
    return [
        f"{path}: '{name}' has {int((~np.isfinite(value)).sum())} values that are not finite"
        for name, value in values.items()
        if value.dtype.kind == "f" and not np.isfinite(value).all()
    ]


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not a number")


def _tokens(path: Path, arrays: Arrays) -> list[str]:
    offsets, words = arrays["offsets"], arrays["words"]
    known = arrays.artifact.settings.get("words", math.inf)
    whole = len(offsets) == len(arrays["ids"]) + 1 and offsets[0] == 0 and offsets[-1] == len(words)
    faults = [] if whole and (np.diff(offsets) >= 0).all() else ["its captions do not fit its words"]
    if len(words) and not 0 <= words.min() <= words.max() < known:
        faults.append(f"has words beyond the {known} of its vocabulary")
    return [f"{path}: {fault}" for fault in faults] + _twice(path, arrays.texts("ids"))


def _statistics(path: Path, arrays: Arrays) -> list[str]:
    mean, deviation = arrays["mean"], arrays["deviation"]
    if mean.shape != deviation.shape:
        return [f"{path}: has {mean.shape} means, but {deviation.shape} deviations"]
    return [f"{path}: has negative deviations"] if (deviation < 0).any() else []


ARRAYS: dict[str, Callable[[Path, Arrays], list[str]]] = {"statistics": _statistics, "tokens": _tokens}

CHECKS: dict[str, Callable[[Path, Done], Contents]] = {
    STORE: _rows,
    "images.jsonl": _images,
    "captions.jsonl": _captions,
    "rejects.csv": _rejects,
    "vocabulary.json": _vocabulary,
    ".h5": _arrays,
    ".safetensors": _model,
    HISTORY: _history,
    ".json": _json,
    ".html": _page,
}
