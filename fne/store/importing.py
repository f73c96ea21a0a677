"""Bringing the features that somebody else computed into a row store of ours."""

import os
import tempfile
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fne.core.errors import InputError
from fne.store.chosen import Names, choose_ids, choose_layers, choose_values
from fne.store.elsewhere import CrashedError, StalledError, elsewhere
from fne.store.files import file_digest, said_clearly
from fne.store.foreign import open_foreign
from fne.store.layout import Layer, plan_shards
from fne.store.values import value_fault
from fne.store.writer import write_rows

SHARD = 1 << 26  # bytes: several times this is in memory while a shard is written
BLOCK = 1 << 25  # bytes read in one go
PATIENCE = 60.0  # seconds: how long a block may take, from a slow disk and in unfavorable chunks


@dataclass(frozen=True)
class Imported:
    """What was taken for what."""

    values: str
    ids_from: str
    layers_from: str
    ids: list[str]
    layers: list[Layer]
    dtype: str

    @property
    def features(self) -> int:
        """The number of columns."""
        return sum(layer.features for layer in self.layers)


def import_rows(source: Path, store: Path, names: Names, ids_file: Path | None = None) -> Imported:
    """Write the rows of a file of others as the artifact `activations`, in bounded memory.

    Raises:
        InputError: if the file cannot be used; the message says which array, row and layer.
    """
    with closing(_read(source, names, ids_file)) as read:
        taken: Imported = next(read)
        settings = {
            "source": source.name,
            "sha256": file_digest(source),
            "values": taken.values,
            "ids": taken.ids_from,
            "layers": taken.layers_from,
        }
        blocks = _checked(source, read, taken)
        with said_clearly(store):
            store.parent.mkdir(parents=True, exist_ok=True)
            shards = _sharded(store, blocks, taken.ids, taken.features, taken.dtype)
            write_rows(store, "activations", taken.layers, taken.dtype, shards, settings, {})
    return taken


def take(source: Path, names: Names, ids_file: Path | None) -> Iterator[Any]:
    """Yield an `Imported`, and then the rows in blocks, in the order of the file."""
    with open_foreign(source) as tables:
        values = choose_values(source, tables, names.values)
        ids, ids_from = choose_ids(source, tables, values, names.ids, ids_file)
        layers, layers_from = choose_layers(source, tables, values, names.layers)
        dtype = "float16" if values.dtype.itemsize == 2 else "float32"
        yield Imported(values.name, ids_from, layers_from, ids, layers, dtype)
        step = max(1, BLOCK // (values.dtype.itemsize * values.shape[1]))
        for start in range(0, len(ids), step):
            with np.errstate(over="ignore"):  # a value too large for the type becomes infinite and is refused
                yield values.read(start, start + step).astype(dtype)


def _read(source: Path, names: Names, ids_file: Path | None) -> Generator[Any, None, None]:
    """Yield what `take` yields, in spite of a file in which HDF5 hangs or crashes."""
    try:
        yield from elsewhere(take, (source, names, ids_file), PATIENCE)
    except StalledError:
        raise InputError(
            f"{source}: reading it has not come on for {PATIENCE:g} seconds, as in a damaged file; "
            "nothing was imported; fetch it or write it again"
        ) from None
    except CrashedError:
        raise InputError(
            f"{source}: reading it brought the process down, as a damaged file can; "
            "nothing was imported; fetch it or write it again"
        ) from None


def _checked(source: Path, blocks: Iterable[np.ndarray], taken: Imported) -> Iterator[tuple[int, np.ndarray]]:
    """Yield blocks of finite values, each with the place of its first row."""
    start = 0
    for block in blocks:
        fault = value_fault(block, taken.dtype, taken.ids[start : start + len(block)], taken.layers)
        if fault:
            raise InputError(f"{source}: {fault}; nothing was imported")
        yield start, block
        start += len(block)


def _sharded(
    store: Path, blocks: Iterator[tuple[int, np.ndarray]], ids: Sequence[str], features: int, dtype: str
) -> Iterator[tuple[int, list[str], np.ndarray]]:
    """Yield the shards of a store, for which the rows are put in order on the disk beside it."""
    size = len(ids) * features * np.dtype(dtype).itemsize
    plan = plan_shards(ids, -(-size // SHARD))
    place = {
        row_id: position for position, row_id in enumerate(each for ids in plan.values() for each in ids)
    }
    places = np.array([place[row_id] for row_id in ids])
    with tempfile.TemporaryFile(dir=store.parent) as file:
        # Without room of its own, a memory map on a full disk would end the process.
        os.posix_fallocate(file.fileno(), 0, size)
        ordered = np.memmap(file, dtype=dtype, mode="r+", shape=(len(ids), features))
        for start, block in blocks:
            ordered[places[start : start + len(block)]] = block
        end = 0
        for number, chosen in plan.items():
            start, end = end, end + len(chosen)
            yield number, chosen, np.array(ordered[start:end])
