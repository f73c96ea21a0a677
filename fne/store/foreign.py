"""Reading arrays from files of others: HDF5, `.npy` and `.npz`.

Nothing in such a file is executed, and nothing outside it is read: Python objects,
links out of the file, external storage and virtual datasets are refused. What a file is,
is told from its content.
"""

import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from tokenize import TokenError
from typing import IO

import h5py
import numpy as np

from fne.core.errors import InputError
from fne.store.hdf5 import own_datasets

NUMBERS, WHOLE, TEXT, OBJECTS, OTHER = "numbers", "whole numbers", "text", "Python objects", "other"
# What h5py, NumPy and zipfile raise on a damaged file, or on an archive with a password; the first, where
# they look for arrays, not where they read them.
UNLISTED = (KeyError, TypeError, SyntaxError, TokenError)
DAMAGED = (OSError, ValueError, RuntimeError, EOFError, zipfile.BadZipFile, zlib.error)
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
    with ExitStack() as opened:
        file = opened.enter_context(_opened(path))
        with _refusing(path, (*DAMAGED, *UNLISTED)):
            tables = _list(path, file, opened)
        with _refusing(path, DAMAGED):
            yield tables


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


@contextmanager
def _refusing(path: Path, damage: tuple[type[Exception], ...]) -> Iterator[None]:
    try:
        yield
    except damage as error:
        raise InputError(f"{path}: damaged ({' '.join(str(error).split())})") from None


def _list(path: Path, file: IO[bytes], opened: ExitStack) -> dict[str, Table]:
    start = file.read(8)
    file.seek(0)
    if h5py.is_hdf5(path):
        hdf5 = opened.enter_context(h5py.File(path, "r"))
        return {name: _dataset(name, each) for name, each in own_datasets(path, hdf5).items()}
    if start.startswith(np.lib.format.MAGIC_PREFIX):
        return {path.stem: _npy(path, file)}
    if start.startswith(b"PK"):
        return dict(_members(opened.enter_context(zipfile.ZipFile(file))))
    raise InputError(f"{path}: not an HDF5, .npy or .npz file; it begins with {start!r}")


def _opened(path: Path) -> IO[bytes]:
    if not path.is_file():
        raise InputError(f"{path}: {'not a file' if path.exists() else 'no such file'}")
    try:
        return path.open("rb")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None


def _dataset(name: str, dataset: h5py.Dataset) -> Table:
    text = h5py.check_string_dtype(dataset.dtype) is not None
    kind = TEXT if text else _KINDS.get(dataset.dtype.kind, OTHER)
    return Table(name, dataset.shape or (), dataset.dtype, kind, lambda start, stop: dataset[start:stop])


def _npy(path: Path, file: IO[bytes]) -> Table:
    shape, dtype, _ = _header(file)
    if dtype.hasobject:
        return Table(path.stem, shape, dtype, OBJECTS, _refuse)
    mapped = np.load(path, mmap_mode="r", allow_pickle=False)
    return Table(
        path.stem, shape, dtype, _KINDS.get(dtype.kind, OTHER), lambda start, stop: mapped[start:stop]
    )


def _members(archive: zipfile.ZipFile) -> Iterator[tuple[str, Table]]:
    for info in archive.infolist():
        name = info.filename.removesuffix(".npy")
        member = archive.open(info)
        shape, dtype, by_columns = _header(member)
        kind = _KINDS.get(dtype.kind, OTHER)
        if dtype.hasobject:
            kind = OBJECTS
        elif int(np.prod(shape, dtype=object)) * dtype.itemsize > info.file_size:
            raise ValueError(f"'{name}' is shorter than it says")
        # An array in Fortran's order has no rows that could be read one after the other.
        read = (
            partial(_part, cache(partial(_whole, archive, info)))
            if by_columns
            else partial(_following, member, member.tell(), shape, dtype)
        )
        yield name, Table(name, shape, dtype, kind, read)


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype, bool]:
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, by_columns, dtype = read(file)
    return shape, dtype, by_columns


def _following(
    member: IO[bytes], begin: int, shape: tuple[int, ...], dtype: np.dtype, start: int, stop: int
) -> np.ndarray:
    """Read some rows of an archive's member; those that follow the last ones are all that is unpacked."""
    count = max(0, min(stop, shape[0]) - start)
    size = int(np.prod(shape[1:], dtype=np.int64)) * dtype.itemsize
    if member.tell() != begin + start * size:
        member.seek(begin + start * size)
    return np.frombuffer(member.read(count * size), dtype).reshape(count, *shape[1:])


def _whole(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(info) as member:
        array: np.ndarray = np.lib.format.read_array(member, allow_pickle=False)
        return array


def _part(load: Callable[[], np.ndarray], start: int, stop: int) -> np.ndarray:
    return load()[start:stop]


def _refuse(start: int, stop: int) -> np.ndarray:
    raise ValueError("Python objects are refused")
