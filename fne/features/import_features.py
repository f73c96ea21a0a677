"""Importing features that others computed, as a row store that `embed.source` can name.

Which arrays of the file are the values, the ids and the layers is decided as follows: the array that the user
names; otherwise the only one whose shape and type fit; otherwise the only fitting one with a usual name.

The file is read in blocks, so memory is bounded, and in a separate process, in which HDF5 may hang or crash.
"""

import os
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from fne.core.errors import InputError
from fne.core.files import file_digest, read_bytes, readable_os_errors
from fne.core.isolation import CrashedError, StalledError, TooLargeError, run_in_subprocess
from fne.core.progress import progress
from fne.core.stat_cache import file_state
from fne.features.feature_files import INTEGERS, NUMBERS, OBJECTS, TEXT, Table, open_tables, read_texts
from fne.features.join import check_destination
from fne.store.layout import Layer, plan_shards, value_fault
from fne.store.rows import write_rows

VALUES = ("activations", "features", "embeddings", "rows", "values", "vector", "vectors")
IDS = ("ids", "id", "image_ids", "image_id", "names", "filenames", "file_names", "keys")
LAYERS = ("layers", "layer", "layer_names")
NUMBERS_OF_CAPTIONS = ("number", "numbers", "caption_number", "caption_numbers")
# The artifact that caption vectors of others become, and the form of a row's id: image#number.
CAPTION_FEATURES = "caption_features"
CAPTION_ID = re.compile(r".+#[0-9]+", re.DOTALL)
SHARD = 1 << 26  # bytes: several times this is in memory while a shard is written
BLOCK = 1 << 25  # bytes read at once
# Bytes that reading a file may take; for a large file, a multiple of its size is added.
MAX_MEMORY = 1 << 30
TIMEOUT = 60.0  # seconds per block, enough for a slow disk and unfavorable chunks


@dataclass(frozen=True)
class ArrayNames:
    """Which arrays to import; None for the only one that fits."""

    values: str | None = None
    ids: str | None = None
    layers: str | None = None


def choose_values(source: Path, tables: dict[str, Table], name: str | None) -> Table:
    """Return the array of rows and columns."""
    expected = "rows and columns of float16, float32 or float64"
    fitting = [table for table in tables.values() if len(table.shape) == 2 and table.kind == NUMBERS]
    table = _choose(source, tables, name, fitting, VALUES, "values")
    if table is None:
        raise InputError(f"{source}: has no array with {expected}; {_listing(tables)}")
    if table.kind == OBJECTS:
        raise InputError(
            f"{source}: '{table.name}' holds Python objects, which are refused; save it as numbers"
        )
    if table not in fitting or table.dtype.itemsize > 8:
        raise InputError(f"{source}: {table.describe()}; expected {expected}")
    if 0 in table.shape:
        raise InputError(f"{source}: {table.describe()}; there is nothing to import")
    return table


def choose_ids(
    source: Path,
    tables: dict[str, Table],
    values: Table,
    name: str | None,
    file: Path | None,
    captions: bool = False,
) -> tuple[list[str], str]:
    """Return the unique id of each row, and where the ids come from: an array or a text file.

    The ids of captions are `image#number`; the numbers may be in an array of their own.
    """
    rows = values.shape[0]
    if file is not None:
        ids, origin = _lines(file), file.name
    else:
        fitting = [
            table
            for table in tables.values()
            if table.shape == (rows,)
            and (table.kind in (TEXT, OBJECTS) or (table.kind == INTEGERS and table.short_name in IDS))
        ]
        table = _choose(source, tables, name, fitting, IDS, "ids")
        if table is None:
            raise InputError(
                f"{source}: has no ids for the {rows} rows of '{values.name}'; {_listing(tables)}; "
                "name an array with --ids NAME, or a text file with one id per line with --ids-file FILE"
            )
        if len(table.shape) != 1 or table.kind not in (TEXT, INTEGERS, OBJECTS):
            raise InputError(f"{source}: {table.describe()}; expected one id per row")
        ids, origin = read_texts(source, table), table.name
    if len(ids) != rows:
        raise InputError(f"{source}: '{origin}' has {len(ids)} ids for the {rows} rows of '{values.name}'")
    if "" in ids:
        raise InputError(f"{source}: row {ids.index('')} has an empty id in '{origin}'")
    if captions:
        ids, origin = _caption_ids(source, tables, ids, origin)
    twice = [each for each, count in Counter(ids).items() if count > 1]
    if twice:
        places = [row for row, each in enumerate(ids) if each == twice[0]]
        raise InputError(
            f"{source}: {len(twice)} ids are duplicated, the first is {twice[0]!r} in rows "
            f"{places[0]} and {places[1]}"
        )
    return ids, origin


def _caption_ids(
    source: Path, tables: dict[str, Table], ids: list[str], origin: str
) -> tuple[list[str], str]:
    """Return ids of captions, and where they come from; an array of numbers completes ids of images."""
    if all(CAPTION_ID.fullmatch(each) for each in ids):
        return ids, origin
    fitting = [
        table
        for table in tables.values()
        if table.shape == (len(ids),) and table.kind == INTEGERS and table.short_name in NUMBERS_OF_CAPTIONS
    ]
    if len(fitting) != 1:
        bare = next(each for each in ids if not CAPTION_ID.fullmatch(each))
        raise InputError(
            f"{source}: {bare!r} in '{origin}' does not say which caption of the image it is; write ids as "
            f"image#number, counted from 0, or add an array '{NUMBERS_OF_CAPTIONS[0]}'; {_listing(tables)}"
        )
    numbers = read_texts(source, fitting[0])
    pairs = [f"{image}#{number}" for image, number in zip(ids, numbers, strict=True)]
    return pairs, f"{origin} and {fitting[0].name}"


def choose_layers(
    source: Path, tables: dict[str, Table], values: Table, name: str | None
) -> tuple[list[Layer], str]:
    """Return the layers that the columns belong to, or a single one, and where they come from."""
    columns = values.shape[1]
    fitting = [
        table for table in tables.values() if table.shape == (columns,) and table.kind in (TEXT, OBJECTS)
    ]
    if columns == values.shape[0]:  # then the ids have the same shape, and only the name distinguishes them
        fitting = [table for table in fitting if table.short_name in LAYERS]
    table = _choose(source, tables, name, fitting, LAYERS, "layers")
    if table is None:
        return [Layer(values.name, columns)], f"one layer named '{values.name}'"
    if table.shape != (columns,):
        raise InputError(f"{source}: {table.describe()}; expected one layer per column, {columns} in all")
    layers = [Layer(layer, len(list(run))) for layer, run in groupby(read_texts(source, table))]
    _refuse_scattered(source, layers)
    return layers, table.name


def _refuse_scattered(source: Path, layers: Sequence[Layer]) -> None:
    ends: dict[str, int] = {}
    start = 0
    for layer in layers:
        if layer.name in ends:
            raise InputError(
                f"{source}: layer {layer.name!r} ends before column {ends[layer.name]} and starts again at "
                f"column {start}; put the columns of each layer together"
            )
        start += layer.features
        ends[layer.name] = start


def _choose(
    source: Path,
    tables: dict[str, Table],
    name: str | None,
    fitting: Sequence[Table],
    usual: Sequence[str],
    what: str,
) -> Table | None:
    """Return the table of that name, or the only one that fits, or the only one of a usual name."""
    if name is not None:
        if name not in tables:
            raise InputError(f"{source}: has no array '{name}'; {_listing(tables)}")
        return tables[name]
    named = [table for table in fitting if table.short_name in usual]
    chosen = named or list(fitting)
    if len(chosen) > 1:
        found = ", ".join(f"'{table.name}'" for table in chosen)
        raise InputError(f"{source}: {found} each fit as {what}; choose one with --{what} NAME")
    return chosen[0] if chosen else None


def _listing(tables: dict[str, Table]) -> str:
    return f"it has {', '.join(table.describe() for table in tables.values()) or 'no arrays'}"


def _lines(file: Path) -> list[str]:
    try:
        text = read_bytes(file, "name a text file with one id per line").decode("utf-8-sig")
        return text.splitlines()  # Windows may write a byte order mark first
    except UnicodeDecodeError as error:
        raise InputError(f"{file}: cannot be read as text ({error})") from None


@dataclass(frozen=True)
class Imported:
    """Which arrays were imported, and what they hold."""

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


def import_rows(
    source: Path,
    store: Path,
    names: ArrayNames,
    ids_file: Path | None = None,
    captions: bool = False,
    similarity: str = "cosine",
) -> Imported:
    """Write a file as the artifact `activations`, or `caption_features` for captions, in bounded memory."""
    unchanged = _unchanged(source)
    with closing(_read_in_subprocess(source, names, ids_file, captions)) as read:
        imported = TypeAdapter(Imported).validate_python(next(read))
        settings = {
            "source": source.name,
            "sha256": file_digest(source),
            "values": imported.values,
            "ids": imported.ids_from,
            "layers": imported.layers_from,
            "similarity": similarity,
        }
        blocks = _checked(source, read, imported, unchanged)
        with readable_os_errors(store):
            store.parent.mkdir(parents=True, exist_ok=True)
            name = CAPTION_FEATURES if captions else "activations"
            shards = _sharded(store, blocks, imported.ids, imported.features, imported.dtype, name)
            write_rows(store, name, imported.layers, imported.dtype, shards, settings, {})
    return imported


def read_blocks(
    source: Path, names: ArrayNames, ids_file: Path | None, captions: bool = False
) -> Iterator[Any]:
    """Yield an `Imported`, then the bytes of the rows in blocks, in the order of the file."""
    with open_tables(source) as tables:
        values = choose_values(source, tables, names.values)
        ids, ids_from = choose_ids(source, tables, values, names.ids, ids_file, captions)
        layers, layers_from = choose_layers(source, tables, values, names.layers)
        dtype = "float16" if values.dtype.itemsize == 2 else "float32"
        yield Imported(values.name, ids_from, layers_from, ids, layers, dtype)
        step = max(1, BLOCK // (values.dtype.itemsize * values.shape[1]))
        for start in range(0, len(ids), step):
            # A value too large for the type becomes infinite, which is refused.
            with np.errstate(over="ignore"):
                rows = values.read(start, start + step).astype(dtype)
            yield rows.tobytes()


def _read_in_subprocess(
    source: Path, names: ArrayNames, ids_file: Path | None, captions: bool
) -> Generator[Any, None, None]:
    """Yield what `read_blocks` yields; a file in which HDF5 hangs or crashes is refused."""
    # An array in Fortran order is read as a whole.
    memory = MAX_MEMORY + 2 * (source.stat().st_size if source.is_file() else 0)
    try:
        yield from run_in_subprocess(read_blocks, (source, names, ids_file, captions), TIMEOUT, memory)
    except TooLargeError:
        raise InputError(
            f"{source}: reading it takes more than {memory / 1e6:.0f} MB of memory, the limit for its size; "
            "nothing was imported; write it without compression, row by row"
        ) from None
    except StalledError:
        raise InputError(
            f"{source}: reading made no progress for {TIMEOUT:g} seconds, so the file is probably damaged; "
            "nothing was imported; download or write it again"
        ) from None
    except CrashedError:
        raise InputError(
            f"{source}: the process that read it crashed, so the file is probably damaged; "
            "nothing was imported; download or write it again"
        ) from None


def _checked(
    source: Path, blocks: Iterable[bytes], imported: Imported, unchanged: Callable[[], bool]
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield blocks of finite values, each with the position of its first row.

    The file is too large to be read once for its rows and its digest. So it must not change meanwhile.
    """
    start = 0
    for content in blocks:
        block = np.frombuffer(content, imported.dtype).reshape(-1, imported.features)
        fault = value_fault(block, imported.dtype, imported.ids[start : start + len(block)], imported.layers)
        if fault:
            raise InputError(f"{source}: {fault}; nothing was imported")
        yield start, block
        start += len(block)
    if not unchanged():
        raise InputError(f"{source}: changed while it was read; nothing was imported; run this again")


def _unchanged(source: Path) -> Callable[[], bool]:
    """Return a function that checks whether a file is unchanged; without a file it returns True."""
    if not source.is_file():
        return lambda: True
    before = file_state(source).identity
    return lambda: source.is_file() and file_state(source).identity == before


def _sharded(
    store: Path,
    blocks: Iterator[tuple[int, np.ndarray]],
    ids: Sequence[str],
    features: int,
    dtype: str,
    name: str,
) -> Iterator[tuple[int, list[str], np.ndarray]]:
    """Yield the shards of a store; a temporary file beside it holds the rows in the order of the shards."""
    size = len(ids) * features * np.dtype(dtype).itemsize
    plan = plan_shards(ids, -(-size // SHARD))
    place = {
        row_id: position for position, row_id in enumerate(each for ids in plan.values() for each in ids)
    }
    places = np.array([place[row_id] for row_id in ids])
    with tempfile.TemporaryFile(dir=store.parent) as file:
        # Without allocated space, writing to a memory map on a full disk would kill the process.
        os.posix_fallocate(file.fileno(), 0, size)
        ordered = np.memmap(file, dtype=dtype, mode="r+", shape=(len(ids), features))
        with progress("import", len(ids), unit="row") as shown:
            for start, block in blocks:
                ordered[places[start : start + len(block)]] = block
                shown.update(len(block))
        end = 0
        for number, chosen in plan.items():
            start, end = end, end + len(chosen)
            yield number, chosen, np.array(ordered[start:end])
    check_destination(store, name)  # again: reading may have taken long
