"""Compiled loops over bit planes, for dot products of ternary rows.

One pass counts the bits that a row shares with a query and with its opposite. NumPy needs several passes and
arrays as large as the rows. Importing numba takes a second, so `fne search` counts with NumPy, and the server
with this module.
"""

import numba
import numpy as np

WORD = 8  # bytes

_compiled = numba.njit(cache=True, nogil=True)


def ternary_products(rows: np.ndarray, query: np.ndarray) -> np.ndarray:
    """Return the dot products (rows) of ternary rows with a query, as `fne.store.layout.pack` packs them.

    Example:
        >>> from fne.store.layout import pack
        >>> rows = pack(np.array([[1, 0, -1], [-1, 1, 1]], dtype=np.int8))
        >>> ternary_products(rows, rows[0])
        array([ 2, -2])
    """
    opposite = np.roll(query, len(query) // 2)  # +1 where the query is -1, and the reverse
    whole = rows.shape[1] // WORD * WORD
    products = np.zeros(len(rows), dtype=np.int64)
    count_bits(
        rows[:, :whole].view(np.uint64),
        query[:whole].view(np.uint64),
        opposite[:whole].view(np.uint64),
        products,
    )
    rest = rows[:, whole:]
    for sign, planes in ((1, query), (-1, opposite)):
        products += sign * np.bitwise_count(rest & planes[whole:]).sum(axis=1, dtype=np.int64)
    return products


@_compiled
def count_bits(rows: np.ndarray, query: np.ndarray, opposite: np.ndarray, products: np.ndarray) -> None:
    """Write how many more bits each row (rows, words) has in common with the query than with its opposite."""
    for row in range(rows.shape[0]):
        common, opposed = np.uint64(0), np.uint64(0)
        for word in range(rows.shape[1]):
            common += _bits(rows[row, word] & query[word])
            opposed += _bits(rows[row, word] & opposite[word])
        products[row] = np.int64(common) - np.int64(opposed)


@_compiled
def _bits(word: np.uint64) -> np.uint64:
    """Count the bits of a word; the compiler knows this pattern and uses the processor's instruction."""
    pairs = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    low, high = pairs & np.uint64(0x3333333333333333), (pairs >> np.uint64(2)) & np.uint64(0x3333333333333333)
    fours = low + high
    eights = (fours + (fours >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return (eights * np.uint64(0x0101010101010101)) >> np.uint64(56)
