"""Compiled loops of the order similarity on the CPU.

The differences between captions and images stay in registers: no array of (images, captions, dim) is
allocated. No score and no gradient depends on what else is computed in the same call, so the number of
threads and the blocks do not change any bit of the result.

The module imports numba, so it is imported only where it is used.
"""

import numba
import numpy as np

# Captions per block: they stay in the cache of a core during a loop over all images.
_BLOCK = 32

_compiled = numba.njit(cache=True, nogil=True)
# A sum over dimensions is vectorized only if it may be reordered and its products fused. NaN and
# infinity are still handled.
_reordered = numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})


@_compiled
def score(images: np.ndarray, captions: np.ndarray, scores: np.ndarray, first: int, last: int) -> None:
    """Write the scores (images, captions) of captions `first` to `last` - 1, in tiles of four by two."""
    zero = images.dtype.type(0)
    for begin in range(first, last, _BLOCK):
        end = min(begin + _BLOCK, last)
        for i in range(0, len(images), 4):
            # At the edge, the last vector replaces the missing ones, so that all pairs use the same code.
            i1, i2, i3 = (
                min(i + 1, len(images) - 1),
                min(i + 2, len(images) - 1),
                min(i + 3, len(images) - 1),
            )
            for c in range(begin, end, 2):
                c1 = min(c + 1, end - 1)
                tile = _tile(images[i], images[i1], images[i2], images[i3], captions[c], captions[c1], zero)
                scores[i, c], scores[i, c1] = zero - tile[0], zero - tile[1]
                scores[i1, c], scores[i1, c1] = zero - tile[2], zero - tile[3]
                scores[i2, c], scores[i2, c1] = zero - tile[4], zero - tile[5]
                scores[i3, c], scores[i3, c1] = zero - tile[6], zero - tile[7]


@_compiled
def sum_excess(
    vectors: np.ndarray, others: np.ndarray, weights: np.ndarray, sums: np.ndarray, first: int, last: int
) -> None:
    """Write the weighted excess of all others over each of the vectors `first` to `last` - 1.

    Vectors and sums are (vectors, dim), others (others, dim) and weights (vectors, others).
    """
    zero = vectors.dtype.type(0)
    for number in range(first, last):
        vector, row, total = vectors[number], weights[number], sums[number]
        total[:] = zero
        whole = len(others) // 4 * 4
        for other in range(0, whole, 4):
            _add_four(vector, others[other : other + 4], row[other : other + 4], total, zero)
        for other in range(whole, len(others)):
            _add_excess(vector, others[other], row[other], total, zero)


@_reordered
def _tile(
    i0: np.ndarray,
    i1: np.ndarray,
    i2: np.ndarray,
    i3: np.ndarray,
    c0: np.ndarray,
    c1: np.ndarray,
    zero: np.floating,
) -> tuple[np.floating, ...]:
    """Return the squared excess of two captions over four images; the eight sums fit into registers."""
    s00 = s01 = s10 = s11 = s20 = s21 = s30 = s31 = zero
    for d in range(len(i0)):
        s00 += _squared_excess(c0[d], i0[d], zero)
        s01 += _squared_excess(c1[d], i0[d], zero)
        s10 += _squared_excess(c0[d], i1[d], zero)
        s11 += _squared_excess(c1[d], i1[d], zero)
        s20 += _squared_excess(c0[d], i2[d], zero)
        s21 += _squared_excess(c1[d], i2[d], zero)
        s30 += _squared_excess(c0[d], i3[d], zero)
        s31 += _squared_excess(c1[d], i3[d], zero)
    return s00, s01, s10, s11, s20, s21, s30, s31


@_reordered
def _squared_excess(caption: np.floating, image: np.floating, zero: np.floating) -> np.floating:
    difference = caption - image
    # NaN is not below zero, so it is kept and can be detected.
    excess = zero if difference < zero else difference
    return excess * excess


@_compiled
def _add_four(
    vector: np.ndarray, others: np.ndarray, weights: np.ndarray, total: np.ndarray, zero: np.floating
) -> None:
    """Add what four calls of `_add_excess` add, in the same order, but read and write the sums once."""
    o0, o1, o2, o3 = others[0], others[1], others[2], others[3]
    w0, w1, w2, w3 = weights[0], weights[1], weights[2], weights[3]
    for d in range(len(vector)):
        value, added = vector[d], total[d]
        added += w0 * _excess(o0[d], value, zero)
        added += w1 * _excess(o1[d], value, zero)
        added += w2 * _excess(o2[d], value, zero)
        added += w3 * _excess(o3[d], value, zero)
        total[d] = added


@_compiled
def _add_excess(
    vector: np.ndarray, other: np.ndarray, weight: np.floating, total: np.ndarray, zero: np.floating
) -> None:
    for d in range(len(vector)):
        total[d] += weight * _excess(other[d], vector[d], zero)


@_compiled
def _excess(other: np.floating, value: np.floating, zero: np.floating) -> np.floating:
    difference = other - value
    # NaN is not below zero, so it is kept and can be detected.
    return zero if difference < zero else difference
