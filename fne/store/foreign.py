"""Reading arrays from files of others: HDF5, `.npy` and `.npz`.

Nothing in such a file is executed, and nothing outside it is read: Python objects,
links out of the file, external storage and virtual datasets are refused. What a file is,
is told from its content.
"""

import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import IO

import h5py
import numpy as np

from fne.core.errors import InputError
from fne.store.hdf5 import own_datasets

NUMBERS, WHOLE, TEXT, OBJECTS, OTHER = "numbers", "whole numbers", "text", "Python objects", "other"
_KINDS = {"f": NUMBERS, "i": WHOLE, "u": WHOLE, "U": TEXT, "S": TEXT, "O": OBJECTS}


@dataclass(frozen=True)
class Table:
    """An array that has not been read yet; `read(start, stop)` returns some of its rows."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    kind: str
    read: Callable[[int, int], np.ndarray]

    @property
    def short_name(self) -> str:
        """Its name in lower case, without the groups that it is in."""
        return self.name.rpartition("/")[2].lower()

    def describe(self) -> str:
        """Return its name, shape and type in words."""
        return f"'{self.name}' {self.shape} of {self.kind if self.kind in (TEXT, OBJECTS) else self.dtype}"


@contextmanager
def open_foreign(path: Path) -> Iterator[dict[str, Table]]:
    """Yield the arrays of a file by their names.

    Raises:
        InputError: if the file is missing, of another format, damaged, or reaches out of itself.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    with path.open("rb") as file:
        start = file.read(8)
        file.seek(0)
        try:
            if h5py.is_hdf5(path):
                with h5py.File(path, "r") as hdf5:
                    yield {name: _dataset(name, each) for name, each in own_datasets(path, hdf5).items()}
            elif start.startswith(np.lib.format.MAGIC_PREFIX):
                yield {path.stem: _npy(path, file)}
            elif start.startswith(b"PK"):
                with zipfile.ZipFile(file) as archive:
                    yield dict(_members(archive))
            else:
                raise InputError(f"{path}: not an HDF5, .npy or .npz file; it begins with {start!r}")
        except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise InputError(f"{path}: damaged ({' '.join(str(error).split())})") from None


def read_texts(path: Path, table: Table) -> list[str]:
    """Return a table of text, or of whole numbers, as a list of `str`.

    Raises:
        InputError: if it holds Python objects, or naming a row that is not UTF-8.
    """
    if table.kind == OBJECTS:
        raise InputError(
            f"{path}: '{table.name}' holds Python objects, which are refused; save it as strings"
        )
    values = table.read(0, table.shape[0]).tolist()
    texts = []
    for row, value in enumerate(values):
        try:
            texts.append(value.decode() if isinstance(value, bytes) else str(value))
            texts[-1].encode()
        except UnicodeError:
            raise InputError(f"{path}: row {row} of '{table.name}' is not UTF-8 text") from None
    return texts


def _dataset(name: str, dataset: h5py.Dataset) -> Table:
    text = h5py.check_string_dtype(dataset.dtype) is not None
    kind = TEXT if text else _KINDS.get(dataset.dtype.kind, OTHER)
    return Table(name, dataset.shape or (), dataset.dtype, kind, lambda start, stop: dataset[start:stop])


def _npy(path: Path, file: IO[bytes]) -> Table:
    shape, dtype = _header(file)
    if dtype.hasobject:
        return Table(path.stem, shape, dtype, OBJECTS, _refuse)
    mapped = np.load(path, mmap_mode="r", allow_pickle=False)
    return Table(
        path.stem, shape, dtype, _KINDS.get(dtype.kind, OTHER), lambda start, stop: mapped[start:stop]
    )


def _members(archive: zipfile.ZipFile) -> Iterator[tuple[str, Table]]:
    for info in archive.infolist():
        name = info.filename.removesuffix(".npy")
        with archive.open(info) as member:
            shape, dtype = _header(member)
        kind = _KINDS.get(dtype.kind, OTHER)
        if dtype.hasobject:
            kind = OBJECTS
        elif int(np.prod(shape, dtype=object)) * dtype.itemsize > info.file_size:
            raise ValueError(f"'{name}' is shorter than it says")
        yield name, Table(name, shape, dtype, kind, partial(_part, cache(partial(_member, archive, info))))


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype]:
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    return shape, dtype


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(info) as member:
        array: np.ndarray = np.lib.format.read_array(member, allow_pickle=False)
        return array


def _part(load: Callable[[], np.ndarray], start: int, stop: int) -> np.ndarray:
    return load()[start:stop]


def _refuse(start: int, stop: int) -> np.ndarray:
    raise ValueError("Python objects are refused")
