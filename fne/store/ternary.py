"""Ternary values as two bit planes: which are +1, and which are -1.

A value takes two bits, and a plane is ready for bitwise counting.
"""

import numpy as np


def pack(values: np.ndarray) -> np.ndarray:
    """Pack rows of -1, 0 and +1 into bytes: the plane of +1, then the plane of -1.

    Example:
        >>> pack(np.array([[1, 0, -1]], dtype=np.int8))
        array([[128,  32]], dtype=uint8)
    """
    return np.concatenate([np.packbits(values > 0, axis=1), np.packbits(values < 0, axis=1)], axis=1)


def unpack(planes: np.ndarray, features: int) -> np.ndarray:
    """Return the rows of -1, 0 and +1 that `pack` packed.

    Example:
        >>> unpack(np.array([[128, 32]], dtype=np.uint8), features=3)
        array([[ 1,  0, -1]], dtype=int8)
    """
    half = planes.shape[1] // 2
    positive = np.unpackbits(planes[:, :half], axis=1, count=features)
    negative = np.unpackbits(planes[:, half:], axis=1, count=features)
    return positive.view(np.int8) - negative.view(np.int8)
