"""Products of ternary rows in NumPy, for a search of a single query."""

import numpy as np


def ternary_products(rows: np.ndarray, query: np.ndarray) -> np.ndarray:
    """Return the exact dot products (rows) of ternary rows with a query, both as bit planes.

    `fne.search.bit_kernels` is faster, but takes longer to import than a search takes.
    """
    opposite = np.roll(query, len(query) // 2)  # +1 where the query is -1, and the reverse
    products: np.ndarray = _common_bits(rows, query) - _common_bits(rows, opposite)
    return products


def _common_bits(rows: np.ndarray, planes: np.ndarray) -> np.ndarray:
    counts: np.ndarray = np.bitwise_count(rows & planes).sum(axis=1, dtype=np.int32)
    return counts
