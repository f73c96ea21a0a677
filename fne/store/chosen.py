"""Which arrays of somebody else's file are the values, the ids and the layers.

An array is taken by its name if the user gives one, otherwise if it is the only one
whose shape and type fit, or the only fitting one with a usual name. Every function
raises `InputError` where that leaves no array or several, or where the array is faulty.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from fne.core.errors import InputError
from fne.store.foreign import NUMBERS, OBJECTS, TEXT, WHOLE, Table, read_texts
from fne.store.layout import Layer

VALUES = ("activations", "features", "embeddings", "rows", "values")
IDS = ("ids", "id", "image_ids", "image_id", "names", "filenames", "file_names", "keys")
LAYERS = ("layers", "layer", "layer_names")


@dataclass(frozen=True)
class Names:
    """Which arrays to take; None where the only one that fits is meant."""

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
    source: Path, tables: dict[str, Table], values: Table, name: str | None, file: Path | None
) -> tuple[list[str], str]:
    """Return the id of each row, each there once, and where they come from: an array or a text file."""
    rows = values.shape[0]
    if file is not None:
        ids, taken = _lines(file), file.name
    else:
        fitting = [
            table
            for table in tables.values()
            if table.shape == (rows,)
            and (table.kind in (TEXT, OBJECTS) or (table.kind == WHOLE and table.short_name in IDS))
        ]
        table = _choose(source, tables, name, fitting, IDS, "ids")
        if table is None:
            raise InputError(
                f"{source}: has no ids for the {rows} rows of '{values.name}'; {_listing(tables)}; "
                "name an array of ids with --ids NAME, or a text file with an id a line with --ids-file FILE"
            )
        if len(table.shape) != 1 or table.kind not in (TEXT, WHOLE, OBJECTS):
            raise InputError(f"{source}: {table.describe()}; expected one id for each row")
        ids, taken = read_texts(source, table), table.name
    if len(ids) != rows:
        raise InputError(f"{source}: '{taken}' has {len(ids)} ids for the {rows} rows of '{values.name}'")
    if "" in ids:
        raise InputError(f"{source}: row {ids.index('')} has an empty id in '{taken}'")
    twice = [each for each, count in Counter(ids).items() if count > 1]
    if twice:
        places = [row for row, each in enumerate(ids) if each == twice[0]]
        raise InputError(
            f"{source}: {len(twice)} ids come more than once, the first is {twice[0]!r} in rows "
            f"{places[0]} and {places[1]}"
        )
    return ids, taken


def choose_layers(
    source: Path, tables: dict[str, Table], values: Table, name: str | None
) -> tuple[list[Layer], str]:
    """Return the layers that the columns belong to, or a single one, and where they come from."""
    columns = values.shape[1]
    fitting = [
        table for table in tables.values() if table.shape == (columns,) and table.kind in (TEXT, OBJECTS)
    ]
    if columns == values.shape[0]:  # then the ids have the same shape, and only a name can tell
        fitting = [table for table in fitting if table.short_name in LAYERS]
    table = _choose(source, tables, name, fitting, LAYERS, "layers")
    if table is None:
        return [Layer(values.name, columns)], f"one layer named '{values.name}'"
    if table.shape != (columns,):
        raise InputError(f"{source}: {table.describe()}; expected a layer for each of the {columns} columns")
    layers = [Layer(layer, len(list(run))) for layer, run in groupby(read_texts(source, table))]
    _refuse_scattered(source, layers)
    return layers, table.name


def _refuse_scattered(source: Path, layers: Sequence[Layer]) -> None:
    ends: dict[str, int] = {}
    start = 0
    for layer in layers:
        if layer.name in ends:
            raise InputError(
                f"{source}: layer {layer.name!r} ends before column {ends[layer.name]} and comes again at "
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
        raise InputError(f"{source}: {found} could each be the {what}; choose one with --{what} NAME")
    return chosen[0] if chosen else None


def _listing(tables: dict[str, Table]) -> str:
    return f"it has {', '.join(table.describe() for table in tables.values()) or 'no arrays'}"


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8-sig").splitlines()  # Windows puts a mark first
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: cannot be read as text ({error})") from None
