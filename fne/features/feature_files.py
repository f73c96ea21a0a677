"""Reading arrays from untrusted files: HDF5, `.npy`, `.npz` and Parquet.

Nothing in such a file is executed, and nothing outside it is read: Python objects, links out of the file,
external storage and virtual datasets are refused. The format is detected from the content. A damaged file can
keep HDF5 busy for hours, or crash its process: so these files are read with `fne.core.isolation`.
"""

import math
import sys
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
from fne.core.files import missing_path
from fne.features import parquet
from fne.store.arrays import own_datasets
from fne.store.layout import TERNARY

NUMBERS, INTEGERS, TEXT, OBJECTS, OTHER = "numbers", "integers", "text", "Python objects", "other"
# What h5py, NumPy and zipfile raise on a damaged file, or on an archive with a password: the first group only
# while they list the arrays, the second also while they read them.
LISTING = (KeyError, TypeError, SyntaxError, TokenError)
DAMAGED = (OSError, ValueError, RuntimeError, EOFError, zipfile.BadZipFile, zlib.error)
MAX_CHUNK = 1 << 28  # bytes of a chunk of HDF5
MAX_TEXT = 1 << 28  # bytes of an array of ids or layers, as it is declared
_KINDS = {"f": NUMBERS, "i": INTEGERS, "u": INTEGERS, "U": TEXT, "S": TEXT, "O": OBJECTS}


@dataclass(frozen=True)
class Table:
    """An array that is not read yet; `read(start, stop)` returns some of its rows."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    kind: str
    read: Callable[[int, int], np.ndarray]

    @property
    def short_name(self) -> str:
        """Its name in lower case, without its groups."""
        return self.name.rpartition("/")[2].lower()

    def describe(self) -> str:
        """Return its name, shape and type as text."""
        return f"'{self.name}' {self.shape} of {self.kind if self.kind in (TEXT, OBJECTS) else self.dtype}"


@contextmanager
def open_tables(path: Path) -> Iterator[dict[str, Table]]:
    """Yield the arrays of a file by name."""
    with ExitStack() as opened:
        file = opened.enter_context(_open(path))
        with _refuse_damage(path, (*DAMAGED, *LISTING)):
            tables = _list_tables(path, file, opened)
        with _refuse_damage(path, DAMAGED):
            yield tables


def read_texts(path: Path, table: Table) -> list[str]:
    """Return a table of text or of integers as a list of `str`."""
    if table.kind == OBJECTS:
        raise InputError(
            f"{path}: '{table.name}' holds Python objects, which are refused; save it as strings"
        )
    size = table.shape[0] * table.dtype.itemsize
    if size > MAX_TEXT:
        raise InputError(
            f"{path}: '{table.name}' would take {size / 1e6:.0f} MB, more than {MAX_TEXT / 1e6:.0f} MB; "
            "write it as shorter strings"
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
def _refuse_damage(path: Path, damage: tuple[type[Exception], ...]) -> Iterator[None]:
    try:
        yield
    except damage as error:
        raise InputError(f"{path}: damaged ({' '.join(str(error).split())})") from None


def _list_tables(path: Path, file: IO[bytes], opened: ExitStack) -> dict[str, Table]:
    start = file.read(8)
    file.seek(0)
    if h5py.is_hdf5(path):
        hdf5 = opened.enter_context(h5py.File(path, "r"))
        return {name: _hdf5_table(name, each) for name, each in own_datasets(path, hdf5).items()}
    if start.startswith(np.lib.format.MAGIC_PREFIX):
        return {path.stem: _npy_table(path, file)}
    if start.startswith(b"PK"):
        return dict(_archive_tables(opened.enter_context(zipfile.ZipFile(file))))
    if start.startswith(parquet.MAGIC):
        return dict(_parquet_tables(path))
    raise InputError(f"{path}: not an HDF5, .npy, .npz or Parquet file; it begins with {start!r}")


def _open(path: Path) -> IO[bytes]:
    if not path.exists():
        raise missing_path(path, "name an HDF5, .npy, .npz or Parquet file")
    if not path.is_file():
        raise InputError(f"{path}: not a file")
    try:
        return path.open("rb")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None


def _hdf5_table(name: str, dataset: h5py.Dataset) -> Table:
    # HDF5 decompresses a chunk as a whole.
    chunk = math.prod(dataset.chunks or ()) * dataset.dtype.itemsize
    if chunk > MAX_CHUNK:
        raise ValueError(
            f"'{name}' has chunks of {chunk / 1e6:.0f} MB, more than {MAX_CHUNK / 1e6:.0f} MB; "
            "write it with smaller chunks"
        )
    text = h5py.check_string_dtype(dataset.dtype) is not None
    kind = TEXT if text else _KINDS.get(dataset.dtype.kind, OTHER)
    return Table(name, dataset.shape or (), dataset.dtype, kind, lambda start, stop: dataset[start:stop])


def _npy_table(path: Path, file: IO[bytes]) -> Table:
    shape, dtype, _ = _header(file)
    if dtype.hasobject:
        return Table(path.stem, shape, dtype, OBJECTS, _refuse_objects)
    mapped = np.load(path, mmap_mode="r", allow_pickle=False)
    return Table(
        path.stem, shape, dtype, _KINDS.get(dtype.kind, OTHER), lambda start, stop: mapped[start:stop]
    )


def _archive_tables(archive: zipfile.ZipFile) -> Iterator[tuple[str, Table]]:
    for info in archive.infolist():
        name = info.filename.removesuffix(".npy")
        member = archive.open(info)
        shape, dtype, by_columns = _header(member)
        kind = _KINDS.get(dtype.kind, OTHER)
        if dtype.hasobject:
            kind = OBJECTS
        elif int(np.prod(shape, dtype=object)) * dtype.itemsize > info.file_size:
            raise ValueError(f"'{name}' is shorter than its header says")
        # The rows of an array in Fortran order are not contiguous, so the array is read as a whole.
        read = (
            partial(_slice, cache(partial(_read_all, archive, info)))
            if by_columns
            else partial(_read_next, member, member.tell(), shape, dtype)
        )
        yield name, Table(name, shape, dtype, kind, read)


def _parquet_tables(path: Path) -> Iterator[tuple[str, Table]]:
    columns = parquet.ParquetColumns(path)
    noted = columns.noted
    for name, shape, dtype in columns.names():
        width = shape[1] if len(shape) == 2 else None
        kind = TEXT if dtype.hasobject else _KINDS.get(dtype.kind, OTHER)
        read = partial(columns.read, name, width)
        if width is not None and name == parquet.VECTOR and "dtype" in noted:
            # As the store had them; -1, 0 and +1 become numbers.
            dtype, kind = np.dtype("float16" if noted["dtype"] == TERNARY else noted["dtype"]), NUMBERS
        yield name, Table(name, shape, dtype, kind, read)
    if "layers" in noted:
        names = np.array([layer for layer, features in noted["layers"] for _ in range(features)])
        yield "layers", Table("layers", names.shape, names.dtype, TEXT, partial(_slice, lambda: names))


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype, bool]:
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, by_columns, dtype = read(file)
    # NumPy reports some of these with errors of other types, in other words.
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize > sys.maxsize:
        raise ValueError(f"its header has the shape {shape}")
    return shape, dtype, by_columns


def _read_next(
    member: IO[bytes], begin: int, shape: tuple[int, ...], dtype: np.dtype, start: int, stop: int
) -> np.ndarray:
    """Read some rows of a member of an archive; consecutive calls decompress every row once."""
    count = max(0, min(stop, shape[0]) - start)
    size = int(np.prod(shape[1:], dtype=np.int64)) * dtype.itemsize
    if member.tell() != begin + start * size:
        member.seek(begin + start * size)
    return np.frombuffer(member.read(count * size), dtype).reshape(count, *shape[1:])


def _read_all(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(info) as member:
        array: np.ndarray = np.lib.format.read_array(member, allow_pickle=False)
        return array


def _slice(load: Callable[[], np.ndarray], start: int, stop: int) -> np.ndarray:
    return load()[start:stop]


def _refuse_objects(start: int, stop: int) -> np.ndarray:
    raise ValueError("Python objects are refused")
