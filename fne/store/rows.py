"""Reading and writing a row store; `fne.store.layout` describes its files.

Rows are read through read-only memory maps: a store of any size takes only the memory of the requested rows,
and no reader can write to a file that may be a link into a shared cache. A shard is hashed before its first
use, unless it is unchanged since an earlier process hashed it (`fne.core.stat_cache`).
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import DTypeLike
from pydantic import ValidationError

from fne.core import stat_cache
from fne.core.errors import InputError
from fne.core.files import FETCH, file_digest, missing_path, read_bytes, replacing_folder, sync, write_text
from fne.core.stat_cache import file_state
from fne.store.arrays import file_image, own_datasets
from fne.store.artifact import (
    Artifact,
    Contents,
    Done,
    Kind,
    Lineage,
    Lines,
    Sections,
    describe,
    made,
    parse_document,
    repair_hint,
    repeated,
)
from fne.store.catalog import CAPTIONS_FILE, SPLITS, read_captions
from fne.store.checksums import seal_text
from fne.store.layout import (
    FORMAT,
    MANIFEST,
    ROWS,
    TERNARY,
    Hardware,
    Layer,
    Manifest,
    Shard,
    pack,
    shard_name,
    unpack,
    value_fault,
    width,
)

MUCH = 1 << 30  # bytes
BLOCK = 1024  # rows read at once
# The setting of a store that has no rows on purpose; its value is the reason.
WITHOUT_ROWS = "without_rows"
# The names of stores with a row per caption; other stores have one per image.
OF_CAPTIONS = ("caption_embeddings", "caption_features", "caption_vectors")
# Ids and their rows (ids, features).
Block = tuple[list[str], np.ndarray]


class Rows:
    """A row store, open for reading."""

    def __init__(self, artifact: Artifact, manifest: Manifest) -> None:
        self.artifact = artifact
        self.layers = [Layer(name, features) for name, features in manifest.layers]
        self.dtype: str = manifest.dtype
        self.shards = manifest.shards
        self.hardware = manifest.processors
        self._blocks: dict[int, np.ndarray] = {}

    @classmethod
    def open(cls, path: Path, name: str | None = None, pipeline: str = "") -> "Rows":
        """Open a store, which must be the artifact `name` if given, by reading its manifest only.

        `pipeline` is the file of the pipeline that makes it, if that is not the default one.
        """
        manifest_path = path / MANIFEST
        if not manifest_path.exists():
            raise InputError(f"{path}: no row store ({MANIFEST} is missing); {FETCH}")
        content = read_bytes(manifest_path)
        remedy = repair_hint(path)
        document = parse_document(manifest_path, content, FORMAT, remedy)
        try:
            manifest = Manifest.model_validate(document)
        except ValidationError as error:
            fault = error.errors()[0]
            place = ".".join(str(part) for part in fault["loc"])
            raise InputError(f"{manifest_path}: damaged ({place}: {fault['msg']}); {remedy}") from None
        if name is not None and manifest.name != name:
            raise InputError(f"{path}: expected {name}, found {manifest.name}")
        _check_sizes(path, manifest)
        digest = hashlib.sha256(content).hexdigest()
        made_with, made_from, sections = manifest.settings, manifest.lineage, manifest.sections
        artifact = Artifact(path, manifest.name, digest, made_with, made_from, {}, sections, pipeline)
        return cls(artifact, manifest)

    @property
    def without_rows(self) -> str | None:
        """Why the store has no rows on purpose, or None."""
        reason = self.artifact.settings.get(WITHOUT_ROWS)
        return None if reason is None else str(reason)

    @property
    def features(self) -> int:
        """The number of columns."""
        return sum(layer.features for layer in self.layers)

    @cached_property
    def ids(self) -> list[str]:
        """All row ids, in the order of the store."""
        return [row_id for shard in self.shards for row_id in shard.ids]

    def columns(self, layer: str) -> slice:
        """Return the columns of a layer."""
        start = 0
        for each in self.layers:
            if each.name == layer:
                return slice(start, start + each.features)
            start += each.features
        names = ", ".join(each.name for each in self.layers)
        raise InputError(f"{self.artifact.path}: has no layer '{layer}'; it has {names}")

    def check_ids(self, ids: Sequence[str]) -> None:
        """Refuse ids that the store does not have."""
        missing = [row_id for row_id in ids if row_id not in self._places]
        if missing:
            raise InputError(
                f"{self.artifact.path}: has no row for {len(missing)} of {len(ids)} ids, "
                f"the first is {missing[0]!r}; run `dvc repro`"
            )

    def read(self, ids: Sequence[str], dtype: DTypeLike | None = None) -> np.ndarray:
        """Return the rows of `ids`, which may repeat, by default in the stored type (int8 if ternary)."""
        block = self.read_stored(ids)
        if self.dtype == TERNARY:
            return unpack(block, self.features, np.int8 if dtype is None else dtype)
        return block if dtype is None else block.astype(dtype, copy=False)

    def read_stored(self, ids: Sequence[str]) -> np.ndarray:
        """Return the rows of `ids` as the shards store them: ternary rows as bit planes (see `pack`)."""
        numbers, places = self.locate(ids)
        if len(ids) and numbers.min() == numbers.max():
            # All rows are in one shard, as when a store is read in its own order: one copy is enough.
            return np.asarray(self.mapped_block(int(numbers[0]))[places])
        stored = np.uint8 if self.dtype == TERNARY else np.dtype(self.dtype)
        block = np.empty((len(ids), width(self.features, self.dtype)), dtype=stored)
        for number in np.unique(numbers):
            chosen = numbers == number
            block[chosen] = self.mapped_block(int(number))[places[chosen]]
        return block

    def locate(self, ids: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return the shard of each id, as an index into `shards`, and the row's index within that shard."""
        self.check_ids(ids)
        places = np.fromiter((self._places[row_id] for row_id in ids), dtype=np.int64, count=len(ids))
        numbers = np.searchsorted(self._starts, places, side="right") - 1
        return numbers, places - self._starts[numbers]

    def blocks(
        self, ids: Sequence[str] | None = None, size: int = BLOCK, dtype: DTypeLike | None = None
    ) -> Iterator[Block]:
        """Yield ids and their rows, `size` at a time: `ids` in that order, or all rows of the store."""
        wanted = self.ids if ids is None else list(ids)
        for start in range(0, len(wanted), size):
            chosen = wanted[start : start + size]
            yield chosen, self.read(chosen, dtype)

    def batches(
        self,
        size: int,
        generator: np.random.Generator,
        ids: Sequence[str] | None = None,
        dtype: DTypeLike | None = None,
    ) -> Iterator[Block]:
        """Yield what `blocks` yields, in a random order: every row once, the last batch may be smaller."""
        wanted = self.ids if ids is None else ids
        yield from self.blocks([wanted[place] for place in generator.permutation(len(wanted))], size, dtype)

    def verify(self) -> None:
        """Hash all shards, also those that are known to be unchanged."""
        for number in range(len(self.shards)):
            self.verified_block(number)

    def verified_block(self, number: int) -> np.ndarray:
        """Hash a shard, whatever is known about it, and return its rows as stored."""
        _check_shard(self.artifact.path, self.shards[number])
        return _map_shard(self.artifact.path, self.shards[number], self.features, self.dtype)

    def digest(self, ids: Sequence[str]) -> str:
        """Return the digest of the rows of `ids`, in that order; other rows of the store do not change it."""
        layers = [[layer.name, layer.features] for layer in self.layers]
        found = hashlib.sha256(json.dumps([self.dtype, layers, list(ids)]).encode())
        for start in range(0, len(ids), BLOCK):
            found.update(self.read_stored(ids[start : start + BLOCK]).tobytes())
        return found.hexdigest()

    def plan(self) -> dict[int, list[str]]:
        """Return the ids of each shard by its number, for a store that is made from the rows of this one."""
        return {shard.number: shard.ids for shard in self.shards}

    def mapped_block(self, number: int) -> np.ndarray:
        """Return all rows of a shard as stored, read-only and not copied; hash the shard if necessary."""
        if number not in self._blocks:
            folder, shard = self.artifact.path, self.shards[number]
            try:
                # Before hashing, so that a change meanwhile is detected the next time.
                state = file_state(folder / shard.file)
            except FileNotFoundError:
                raise missing_path(folder / shard.file) from None
            records = stat_cache.current()
            if records.lookup(state, shard.sha256) is None:
                _check_shard(folder, shard)
                records.record(state, shard.sha256)
            block = _map_shard(folder, shard, self.features, self.dtype)
            # What is mapped must be what was hashed, now or by an earlier process.
            if file_state(folder / shard.file).identity != state.identity:
                raise InputError(f"{folder / shard.file}: changed while it was opened; run this again")
            self._blocks[number] = block
        return self._blocks[number]

    @cached_property
    def _starts(self) -> np.ndarray:
        """The position of each shard's first row among all rows."""
        return np.cumsum([0, *(len(shard.ids) for shard in self.shards)], dtype=np.int64)[:-1]

    @cached_property
    def _places(self) -> dict[str, int]:
        return {row_id: place for place, row_id in enumerate(self.ids)}


def write_rows(
    path: Path,
    name: str,
    layers: Sequence[Layer],
    dtype: str,
    shards: Iterable[tuple[int, Sequence[str], np.ndarray]],
    settings: dict[str, Any],
    lineage: Lineage,
    hardware: Hardware | None = None,
    sections: Sections | None = None,
) -> None:
    """Write the artifact `name` as a row store, with one shard in memory at a time.

    Args:
        dtype: a NumPy type, or `ternary` for two bit planes.
        shards: the number, ids and rows of each shard, ids as in `plan_shards`.
        hardware: which hardware computed which rows, if that is known.
    """
    width = sum(layer.features for layer in layers)
    with replacing_folder(path) as folder:
        index = [
            _write_shard(folder / shard_name(number), ids, rows, width, dtype) for number, ids, rows in shards
        ]
        manifest = {
            **FORMAT.header(),
            **describe(name, settings, lineage, sections),
            "dtype": dtype,
            "layers": [[layer.name, layer.features] for layer in layers],
            **({"processors": hardware} if hardware else {}),
            "shards": index,
        }
        write_text(folder / MANIFEST, seal_text(json.dumps(manifest, ensure_ascii=False, indent=1) + "\n"))


def rewrite_origin(path: Path, settings: dict[str, Any], lineage: Lineage) -> None:
    """Replace what a store says of its origin; its rows stay as they are."""
    manifest = path / MANIFEST
    document = parse_document(manifest, read_bytes(manifest), FORMAT, repair_hint(path))
    document = {key: value for key, value in document.items() if key != "sha256"}
    document |= {"settings": settings, "lineage": lineage}
    write_text(manifest, seal_text(json.dumps(document, ensure_ascii=False, indent=1) + "\n"))


def write_without_rows(path: Path, name: str, reason: str, lineage: Lineage) -> None:
    """Write a store that has no rows on purpose, and says why."""
    write_rows(path, name, [], "float32", [], {WITHOUT_ROWS: reason}, lineage)


def _write_shard(path: Path, ids: Sequence[str], rows: np.ndarray, width: int, dtype: str) -> dict[str, Any]:
    if rows.shape != (len(ids), width):
        raise ValueError(f"expected {len(ids)} rows of {width} values, got an array of {rows.shape}")
    block = pack(rows) if dtype == TERNARY else rows.astype(dtype, copy=False)
    # Aligned, so that a memory map can read the block directly.
    image = file_image({ROWS: block}, alignment_threshold=1, alignment_interval=64)
    path.write_bytes(image)
    sync(path)
    return {"file": path.name, "sha256": hashlib.sha256(image).hexdigest(), "ids": list(ids)}


def _check_sizes(folder: Path, manifest: Manifest) -> None:
    """Refuse a manifest with far more values than its shards hold, before memory is allocated for them.

    A shard that is only truncated is detected when it is hashed.
    """
    numbers = width(sum(features for _, features in manifest.layers), manifest.dtype)
    itemsize = 1 if manifest.dtype == TERNARY else np.dtype(manifest.dtype).itemsize
    for shard in manifest.shards:
        path, rows = folder / shard.file, len(shard.ids)
        if path.is_file() and path.stat().st_size + MUCH < rows * numbers * itemsize:
            raise InputError(
                f"{path}: damaged: has {path.stat().st_size} bytes, too few for the {rows} rows of {numbers} "
                f"numbers that its manifest names; {repair_hint(folder)}"
            )


def _check_shard(folder: Path, shard: Shard) -> None:
    """Hash a shard of the store in `folder`, and refuse it if the manifest has another digest."""
    path = folder / shard.file
    found = file_digest(path)
    if found != shard.sha256:
        raise InputError(
            f"{path}: damaged: expected {shard.sha256[:12]}…, found {found[:12]}…; {repair_hint(folder)}"
        )


def _map_shard(folder: Path, shard: Shard, features: int, dtype: str) -> np.ndarray:
    """Return the rows of a shard as stored, memory-mapped."""
    path = folder / shard.file
    expected = (len(shard.ids), width(features, dtype))
    stored = "uint8" if dtype == TERNARY else dtype
    try:
        with h5py.File(path, "r") as file:
            rows = own_datasets(path, file)[ROWS]
            offset, shape, found = rows.id.get_offset(), rows.shape, rows.dtype
    except (OSError, KeyError) as error:
        raise InputError(f"{path}: not a valid shard ({error}); {repair_hint(folder)}") from None
    if shape != expected or found != stored or offset is None:
        raise InputError(
            f"{path}: holds {shape} values of {found}, its manifest says {expected} of {stored}; "
            f"{repair_hint(folder)}"
        )
    try:
        return np.memmap(path, dtype=stored, mode="r", offset=offset, shape=shape)
    except (ValueError, OverflowError):
        raise InputError(f"{path}: not a valid shard (shorter than it says); {repair_hint(folder)}") from None


def _check(path: Path, done: Done) -> Contents:
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
    faults += [f"{path}: '{name}' does not belong to the store, move it elsewhere" for name in foreign]
    faults += repeated(path, rows.ids)
    if rows.artifact.name in OF_CAPTIONS:
        return Contents(rows.artifact, caption_ids=rows.ids, faults=faults)
    return Contents(rows.artifact, image_ids=rows.ids, faults=faults)


def _describe(path: Path) -> Lines:
    rows = Rows.open(path)
    rows.verify()
    size = sum(file.stat().st_size for file in path.iterdir())
    layers = ", ".join(f"{layer.name} {layer.features}" for layer in rows.layers)
    hardware = rows.hardware
    if isinstance(hardware, dict):
        hardware = ", ".join(f"{name} ({len(ids)} rows)" for name, ids in hardware.items())
    return [
        f"{path}: {rows.artifact.name}, {len(rows.ids)} rows of {rows.features} values, {size:,} bytes",
        f"  type      {rows.dtype}",
        f"  digest    {rows.artifact.digest}",
        *_rows_per_split(rows),
        f"  layers    {layers}",
        *[f"  computed  by {hardware}"] * bool(hardware),
        *made(rows.artifact),
    ]


def _rows_per_split(rows: Rows) -> Lines:
    """Count the rows of each split, if there is a catalog; a caption is in the split of its image."""
    if not CAPTIONS_FILE.exists():
        return []
    captioned, _ = read_captions(CAPTIONS_FILE)
    split_of = {each: record.split for record in captioned for each in (record.id, *record.caption_ids)}
    unlisted = "not in the catalog"
    counts = Counter(split_of.get(row_id, unlisted) for row_id in rows.ids)
    found = [f"{counts[each]} {each}" for each in (*SPLITS, unlisted) if counts[each]]
    return [f"  rows      {', '.join(found) or 'none'}"]


STORE = Kind(
    "row stores",
    _check,
    lambda path: Contents(Rows.open(path).artifact),
    _describe,
    lambda path: path.is_dir() and ((path / MANIFEST).exists() or any(path.glob("shard-*.h5"))),
)
