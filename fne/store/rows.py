"""Reading a row store; see `fne.store.layout` for what it is.

Opening reads the manifest only. Rows are read through read-only memory maps, so that a
store of any size takes the memory of the rows that are asked for, and no reader can
write to what may be a link into a shared cache.
"""

import hashlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike
from pydantic import ValidationError

from fne.core.errors import InputError
from fne.store.formats import how_to_mend, parse_document, read_bytes
from fne.store.layout import FORMAT, MANIFEST, TERNARY, Layer, Manifest, width
from fne.store.lineage import Artifact
from fne.store.remembered import recall, remember, state
from fne.store.shards import check_shard, map_shard
from fne.store.ternary import unpack

Block = tuple[list[str], np.ndarray]


class Rows:
    """A row store, open for reading."""

    def __init__(self, artifact: Artifact, manifest: Manifest) -> None:
        self.artifact = artifact
        self.layers = [Layer(name, features) for name, features in manifest.layers]
        self.dtype: str = manifest.dtype
        self.shards = manifest.shards
        self.processors = manifest.processors
        self._blocks: dict[int, np.ndarray] = {}

    @classmethod
    def open(cls, path: Path, name: str | None = None) -> "Rows":
        """Open a store by reading its manifest only.

        Args:
            path: the store's folder.
            name: the artifact it must be, such as `activations`; any if None.

        Raises:
            InputError: if it is missing, damaged, of a newer format or another artifact.
        """
        manifest_path = path / MANIFEST
        if not manifest_path.exists():
            raise InputError(
                f"{path}: no store here ({MANIFEST} is missing); run `dvc repro`, or `dvc pull` to fetch it"
            )
        content = read_bytes(manifest_path)
        remedy = how_to_mend(path)
        document = parse_document(manifest_path, content, FORMAT, remedy)
        try:
            manifest = Manifest.model_validate(document)
        except ValidationError as error:
            fault = error.errors()[0]
            place = ".".join(str(part) for part in fault["loc"])
            raise InputError(f"{manifest_path}: damaged ({place}: {fault['msg']}); {remedy}") from None
        if name is not None and manifest.name != name:
            raise InputError(f"{path}: expected {name}, found {manifest.name}")
        digest = hashlib.sha256(content).hexdigest()
        return cls(Artifact(path, manifest.name, digest, manifest.settings, manifest.lineage), manifest)

    @property
    def features(self) -> int:
        """The number of columns."""
        return sum(layer.features for layer in self.layers)

    @cached_property
    def ids(self) -> list[str]:
        """All row ids, in the order of the store."""
        return [row_id for shard in self.shards for row_id in shard.ids]

    def columns(self, layer: str) -> slice:
        """Return the columns of a layer.

        Raises:
            InputError: naming the layers there are.
        """
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
        """Return the rows of `ids`, in that order.

        Args:
            ids: which rows; one may come more than once.
            dtype: the type to return them in; by default as they are kept, ternary ones as int8.

        Raises:
            InputError: naming an id that the store does not have, or a damaged shard.
        """
        block = self.read_kept(ids)
        if self.dtype == TERNARY:
            return unpack(block, self.features, np.int8 if dtype is None else dtype)
        return block if dtype is None else block.astype(dtype, copy=False)

    def read_kept(self, ids: Sequence[str]) -> np.ndarray:
        """Return the rows of `ids` as the shards keep them: ternary ones as bit planes (see `ternary`)."""
        numbers, places = self.locate(ids)
        if len(ids) and numbers.min() == numbers.max():
            # All in one shard, as when a store is read in its own order: one copy is enough.
            return np.asarray(self.mapped_block(int(numbers[0]))[places])
        kept = np.uint8 if self.dtype == TERNARY else np.dtype(self.dtype)
        block = np.empty((len(ids), width(self.features, self.dtype)), dtype=kept)
        for number in np.unique(numbers):
            chosen = numbers == number
            block[chosen] = self.mapped_block(int(number))[places[chosen]]
        return block

    def locate(self, ids: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return the shard of each id, as a position in `shards`, and its place within that shard."""
        self.check_ids(ids)
        places = np.fromiter((self._places[row_id] for row_id in ids), dtype=np.int64, count=len(ids))
        numbers = np.searchsorted(self._starts, places, side="right") - 1
        return numbers, places - self._starts[numbers]

    def blocks(
        self, ids: Sequence[str] | None = None, size: int = 1024, dtype: DTypeLike | None = None
    ) -> Iterator[Block]:
        """Yield ids and their rows, `size` at a time: `ids` in that order, or all of the store.

        `fne.store.catalog.split_ids` gives the ids of a split.
        """
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
        """Yield what `blocks` yields in a random order: every row once, the last batch may be smaller."""
        wanted = self.ids if ids is None else ids
        yield from self.blocks([wanted[place] for place in generator.permutation(len(wanted))], size, dtype)

    def verify(self) -> None:
        """Check the digests of all shards, remembered or not.

        Raises:
            InputError: naming the first shard that is missing or damaged.
        """
        for number in range(len(self.shards)):
            self.verified_block(number)

    def verified_block(self, number: int) -> np.ndarray:
        """Return the block of a shard as it is kept, hashed now and never from memory."""
        check_shard(self.artifact.path, self.shards[number])
        return map_shard(self.artifact.path, self.shards[number], self.features, self.dtype)

    def plan(self) -> dict[int, list[str]]:
        """Return the ids of each shard by its number, for a store made of this one's rows."""
        return {shard.number: shard.ids for shard in self.shards}

    @cached_property
    def _starts(self) -> np.ndarray:
        """Where the rows of each shard start among all rows."""
        return np.cumsum([0, *(len(shard.ids) for shard in self.shards)], dtype=np.int64)[:-1]

    @cached_property
    def _places(self) -> dict[str, int]:
        return {row_id: place for place, row_id in enumerate(self.ids)}

    @cached_property
    def _known(self) -> frozenset[str]:
        return recall()

    def mapped_block(self, number: int) -> np.ndarray:
        """Return all rows of a shard as it keeps them, read-only and not copied, hashed if never before."""
        if number not in self._blocks:
            folder, shard = self.artifact.path, self.shards[number]
            # The state before hashing: what changes meanwhile shall not count as found whole.
            found = state(folder / shard.file, shard.sha256)
            if found not in self._known:
                check_shard(folder, shard)
                remember(folder / shard.file, found)
            self._blocks[number] = map_shard(folder, shard, self.features, self.dtype)
        return self._blocks[number]
