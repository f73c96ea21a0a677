"""Stores of made-up rows."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from fne.store.artifact import Lineage
from fne.store.layout import Layer, plan_shards
from fne.store.rows import Rows, write_rows


def write_store(
    folder: Path, kind: str, layers: Sequence[Layer], rows: Mapping[str, np.ndarray],
    dtype: str = "float32", shards: int = 1, settings: dict[str, object] | None = None, lineage: Lineage | None = None,
) -> Rows:  # fmt: skip
    """Write a store of rows by id, and open it."""
    content = [
        (number, ids, np.stack([rows[each] for each in ids]))
        for number, ids in plan_shards(list(rows), shards).items()
    ]
    write_rows(folder, kind, layers, dtype, content, settings or {}, lineage or {})
    return Rows.open(folder)


def store(
    folder: Path, values: np.ndarray, layers: Sequence[Layer], dtype: str = "float32", shards: int = 2
) -> Rows:
    """Write activations whose rows are named r00, r01, …, and open them."""
    rows = {f"r{number:02d}": row for number, row in enumerate(values)}
    return write_store(folder, "activations", layers, rows, dtype, shards)
