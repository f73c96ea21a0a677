"""Reading a row store; see `fne.store.layout` for what it is."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from fne.core.errors import InputError
from fne.store.arrays import refuse_foreign_storage
from fne.store.files import file_digest
from fne.store.layout import FORMAT, MANIFEST, ROWS, TERNARY, VERSION, Layer
from fne.store.lineage import Artifact
from fne.store.ternary import unpack


class Rows:
    """A row store, open for reading."""

    def __init__(
        self, artifact: Artifact, layers: list[Layer], dtype: str, shards: list[dict[str, Any]]
    ) -> None:
        self.artifact = artifact
        self.layers = layers
        self.dtype = dtype
        self._shards = shards
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
        content = manifest_path.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        try:
            manifest = json.loads(content)
            version = (manifest["format"], manifest["version"])
            artifact = Artifact(path, manifest["name"], digest, manifest["settings"], manifest["lineage"])
            layers = [Layer(layer, features) for layer, features in manifest["layers"]]
            dtype, shards = manifest["dtype"], manifest["shards"]
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"{manifest_path}: damaged ({error!r}); remove {path} and run `dvc repro`"
            ) from None
        if version[0] != FORMAT or version[1] > VERSION:
            raise InputError(
                f"{path}: has format {version[0]} {version[1]}; this version reads {FORMAT} {VERSION}"
            )
        if name is not None and artifact.name != name:
            raise InputError(f"{path}: expected {name}, found {artifact.name}")
        return cls(artifact, layers, dtype, shards)

    @property
    def features(self) -> int:
        """The number of columns."""
        return sum(layer.features for layer in self.layers)

    @cached_property
    def ids(self) -> list[str]:
        """All row ids, in the order of the store."""
        return [row_id for shard in self._shards for row_id in shard["ids"]]

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

    def read(self, ids: Sequence[str]) -> np.ndarray:
        """Return the rows of `ids`, in that order: float, or int8 where the store is ternary."""
        self.check_ids(ids)
        places = [self._places[row_id] for row_id in ids]
        numbers = np.array([number for number, _ in places], dtype=np.int64)
        positions = np.array([position for _, position in places], dtype=np.int64)
        width = 2 * -(-self.features // 8) if self.dtype == TERNARY else self.features
        block = np.empty((len(ids), width), dtype=np.uint8 if self.dtype == TERNARY else self.dtype)
        for number in np.unique(numbers):
            chosen = numbers == number
            block[chosen] = self._block(int(number))[positions[chosen]]
        return unpack(block, self.features) if self.dtype == TERNARY else block

    def blocks(
        self, ids: Sequence[str] | None = None, size: int = 1024
    ) -> Iterator[tuple[list[str], np.ndarray]]:
        """Yield ids and their rows, `size` at a time: `ids` in that order, or all of the store."""
        wanted = self.ids if ids is None else list(ids)
        for start in range(0, len(wanted), size):
            chosen = wanted[start : start + size]
            yield chosen, self.read(chosen)

    def verify(self) -> None:
        """Check the digests of all shards.

        Raises:
            InputError: naming the first shard that is missing or damaged.
        """
        for number in range(len(self._shards)):
            self._block(number)

    def plan(self) -> dict[int, list[str]]:
        """Return the ids of each shard by its number, for a store made of this one's rows."""
        return {int(shard["file"][6:10]): shard["ids"] for shard in self._shards}

    @cached_property
    def _places(self) -> dict[str, tuple[int, int]]:
        return {
            row_id: (number, position)
            for number, shard in enumerate(self._shards)
            for position, row_id in enumerate(shard["ids"])
        }

    def _block(self, number: int) -> np.ndarray:
        if number not in self._blocks:
            shard = self._shards[number]
            path = self.artifact.path / shard["file"]
            found = file_digest(path)
            if found != shard["sha256"]:
                raise InputError(
                    f"{path}: damaged: expected {shard['sha256'][:12]}…, found {found[:12]}…; "
                    f"remove {self.artifact.path} and run `dvc repro`"
                )
            self._blocks[number] = _map(path, len(shard["ids"]))
        return self._blocks[number]


def _map(path: Path, rows: int) -> np.ndarray:
    with h5py.File(path, "r") as file:
        refuse_foreign_storage(path, file)
        dataset = file[ROWS]
        offset, shape, dtype = dataset.id.get_offset(), dataset.shape, dataset.dtype
    if shape[0] != rows or offset is None:
        raise InputError(
            f"{path}: holds {shape[0]} rows, its manifest says {rows}; remove it and run `dvc repro`"
        )
    return np.memmap(path, dtype=dtype, mode="r", offset=offset, shape=shape)
