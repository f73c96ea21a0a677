"""Stores of made-up activations."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fne.store.layout import Layer, plan_shards
from fne.store.rows import Rows, write_rows


def store(
    folder: Path, values: np.ndarray, layers: Sequence[Layer], dtype: str = "float32", shards: int = 2
) -> Rows:
    """Write a store whose rows are named r00, r01, …, and open it."""
    ids = [f"r{number:02d}" for number in range(len(values))]
    content = [
        (number, own, values[[ids.index(each) for each in own]])
        for number, own in plan_shards(ids, shards).items()
    ]
    write_rows(folder, "activations", layers, dtype, content, {}, {})
    return Rows.open(folder)
