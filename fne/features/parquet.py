"""Parquet files of vectors: one row per image or caption, with an id and a list of numbers.

Files that `fne export` writes have the columns `id` and `vector`, those of captions also `image` and
`number`, the caption's number. The entry `fne` of the schema's metadata holds the layers and the stored type.
Files of other programs need a column of lists of equal length and one of ids. pyarrow is optional, so it is
imported only for such a file.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fne.core.errors import InputError
from fne.core.files import replacing
from fne.store.layout import TERNARY, Layer

MAGIC = b"PAR1"
METADATA = b"fne"
ID, VECTOR, IMAGE, NUMBER = "id", "vector", "image", "number"
# Numbers per row group: a reader has one group in memory.
GROUP = 1 << 24


def import_arrow(path: Path) -> Any:
    """Return the module `pyarrow`, with `pyarrow.parquet` in it."""
    try:
        import pyarrow  # optional
        import pyarrow.parquet
    except ImportError:
        raise InputError(
            f"{path}: this needs pyarrow, which is not installed; install it with pip install -e '.[arrow]'"
        ) from None
    return pyarrow


def write_parquet(
    path: Path,
    blocks: Iterable[tuple[list[str], np.ndarray]],
    layers: list[Layer],
    dtype: str,
    captions: bool = False,
) -> None:
    """Write blocks of ids and vectors (ids, features); half precision is written as float32, which holds it.

    Args:
        dtype: the type of the store, which is recorded.
        captions: whether ids are those of captions, an image's id and a number.
    """
    arrow = import_arrow(path)
    features = sum(layer.features for layer in layers)
    stored = np.dtype("int8" if dtype == TERNARY else "float32" if dtype == "float16" else dtype)
    fields = [arrow.field(ID, arrow.string(), nullable=False)]
    if captions:
        fields += [arrow.field(IMAGE, arrow.string()), arrow.field(NUMBER, arrow.int32())]
    item = arrow.field("item", arrow.from_numpy_dtype(stored), nullable=False)
    fields.append(arrow.field(VECTOR, arrow.list_(item, features), nullable=False))
    noted = json.dumps({"dtype": dtype, "layers": [[each.name, each.features] for each in layers]})
    schema = arrow.schema(fields, metadata={METADATA: noted.encode()})
    with replacing(path) as temporary, arrow.parquet.ParquetWriter(temporary, schema) as writer:
        for ids, rows in blocks:
            values = arrow.array(np.ascontiguousarray(rows, dtype=stored).reshape(-1))
            columns = [arrow.array(ids, arrow.string())]
            if captions:
                parts = [each.rpartition("#") for each in ids]
                columns += [
                    arrow.array([image for image, _, _ in parts], arrow.string()),
                    arrow.array([int(number) for _, _, number in parts], arrow.int32()),
                ]
            columns.append(arrow.FixedSizeListArray.from_arrays(values, type=fields[-1].type))
            writer.write_table(arrow.table(columns, schema=schema), row_group_size=max(1, GROUP // features))


class ParquetColumns:
    """The columns of a Parquet file, read one row group at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._arrow = import_arrow(path)
        # Other allocators reserve memory in advance, which the limit of a reading process forbids.
        self._arrow.set_memory_pool(self._arrow.system_memory_pool())
        self._file = self._arrow.parquet.ParquetFile(path)
        self._group = (-1, "", np.empty(0))
        metadata = self._file.metadata
        counts = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
        self._starts = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        self.rows = int(metadata.num_rows)
        noted = (self._file.schema_arrow.metadata or {}).get(METADATA)
        self.noted: dict[str, Any] = json.loads(noted) if noted else {}

    def names(self) -> Iterator[tuple[str, tuple[int, ...], np.dtype]]:
        """Yield the name, shape and type of each column that holds texts, numbers or lists of numbers."""
        types = self._arrow.types
        for field in self._file.schema_arrow:
            kind = field.type
            if types.is_string(kind) or types.is_large_string(kind):
                yield field.name, (self.rows,), np.dtype(object)
            elif types.is_integer(kind) or types.is_floating(kind):
                yield field.name, (self.rows,), np.dtype(kind.to_pandas_dtype())
            elif (types.is_fixed_size_list(kind) or types.is_list(kind) or types.is_large_list(kind)) and (
                types.is_integer(kind.value_type) or types.is_floating(kind.value_type)
            ):
                width = kind.list_size if types.is_fixed_size_list(kind) else self._width(field.name)
                yield field.name, (self.rows, width), np.dtype(kind.value_type.to_pandas_dtype())

    def read(self, name: str, width: int | None, start: int, stop: int) -> np.ndarray:
        """Return some rows of a column (rows), or (rows, width) of a column of lists."""
        stop = min(stop, self.rows)
        parts = []
        for number in range(len(self._starts) - 1):
            first, end = int(self._starts[number]), int(self._starts[number + 1])
            if first < stop and start < end:
                values = self._read_group(number, name, width)
                parts.append(values[max(start, first) - first : min(stop, end) - first])
        return np.concatenate(parts) if parts else np.empty((0, width) if width else 0)

    def _read_group(self, number: int, name: str, width: int | None) -> np.ndarray:
        if self._group[:2] != (number, name):
            column = self._file.read_row_group(number, columns=[name], use_threads=False).column(0)
            column = column.combine_chunks()
            if column.null_count:
                raise ValueError(f"column '{name}' has rows without a value")
            if width is None:
                values = np.array(column.to_pylist(), dtype=object if column.type == "string" else None)
            else:
                flat = column.flatten()
                if flat.null_count:
                    raise ValueError(
                        f"column '{name}' has lists with missing numbers: null, as pandas writes NaN"
                    )
                if len(flat) != len(column) * width or not self._equal(column, width):
                    raise ValueError(f"column '{name}' has lists of other lengths than {width}")
                values = flat.to_numpy(zero_copy_only=False).reshape(len(column), width)
            self._group = (number, name, values)
        return self._group[2]

    def _equal(self, column: Any, width: int) -> bool:
        lengths = self._arrow.compute.list_value_length(column)
        return bool(
            self._arrow.compute.all(self._arrow.compute.equal(lengths, width)).as_py() in (True, None)
        )

    def _width(self, name: str) -> int:
        if not self.rows:
            return 0
        # Not `iter_batches`, which starts threads: the limit of a reading process may forbid that.
        group = int(np.searchsorted(self._starts, 0, side="right")) - 1
        first = self._file.read_row_group(group, columns=[name], use_threads=False).column(0)
        return len(first[0]) if first[0].is_valid else 0
