"""Compiled loops over blocks of activations (images, features).

Numba takes a second to import, so this module is imported where it is used.
"""

import numba
import numpy as np

# Rows and columns that stay in the cache of a core while they are read twice. Long runs of columns are
# prefetched, which is worth more than fitting into the first-level cache.
ROWS = 128
COLUMNS = 2048

# No fastmath: sums are rounded in the order in which they are written here.
_compiled = numba.njit(cache=True, nogil=True)


@_compiled
def add_rows(
    block: np.ndarray, places: np.ndarray, count: int, mean: np.ndarray, squares: np.ndarray
) -> None:
    """Add rows of a block (rows, columns) to the means and summed squares of deviations (columns), in place.

    The mean of a few rows is computed first, then their deviations from it, while the rows are in the cache.
    Both are merged with the `count` earlier rows (Chan et al., 1979). One thread reaches the bandwidth of the
    memory: more threads were not faster. `places` are the rows of the block to add.
    """
    local = np.empty(COLUMNS, dtype=np.float64)
    spread = np.empty(COLUMNS, dtype=np.float64)
    for top in range(0, len(places), ROWS):
        few = places[top : top + ROWS]
        before = count + top
        fraction = len(few) / (before + len(few))
        for left in range(0, len(mean), COLUMNS):
            right = min(left + COLUMNS, len(mean))
            _write_means(block, few, left, right, local)
            _write_spreads(block, few, left, right, local, spread)
            for column in range(right - left):
                delta = local[column] - mean[left + column]
                # Before the first rows there is no mean to move from.
                mean[left + column] = local[column] if before == 0 else mean[left + column] + delta * fraction
                squares[left + column] += spread[column] + delta * delta * (before * fraction)


@_compiled
def _write_means(block: np.ndarray, places: np.ndarray, left: int, right: int, means: np.ndarray) -> None:
    """Write means of columns over some rows, shifted by the first: the mean of a constant is exact."""
    means[:] = 0.0
    shift = block[places[0]][left:right]
    # Four rows at once: the sums are loaded and stored less often.
    for row in range(0, len(places) - 3, 4):
        one, two = block[places[row]][left:right], block[places[row + 1]][left:right]
        three, four = block[places[row + 2]][left:right], block[places[row + 3]][left:right]
        for column in range(right - left):
            base = np.float64(shift[column])
            upper = (np.float64(one[column]) - base) + (np.float64(two[column]) - base)
            lower = (np.float64(three[column]) - base) + (np.float64(four[column]) - base)
            means[column] += upper + lower
    for place in places[len(places) - len(places) % 4 :]:
        one = block[place][left:right]
        for column in range(right - left):
            means[column] += np.float64(one[column]) - np.float64(shift[column])
    for column in range(right - left):
        means[column] = np.float64(shift[column]) + means[column] / len(places)


@_compiled
def _write_spreads(
    block: np.ndarray, places: np.ndarray, left: int, right: int, means: np.ndarray, spreads: np.ndarray
) -> None:
    """Write the summed squares of the deviations of some columns from their means over some rows."""
    spreads[:] = 0.0
    for row in range(0, len(places) - 3, 4):
        one, two = block[places[row]][left:right], block[places[row + 1]][left:right]
        three, four = block[places[row + 2]][left:right], block[places[row + 3]][left:right]
        for column in range(right - left):
            center = means[column]
            upper = (np.float64(one[column]) - center) ** 2 + (np.float64(two[column]) - center) ** 2
            lower = (np.float64(three[column]) - center) ** 2 + (np.float64(four[column]) - center) ** 2
            spreads[column] += upper + lower
    for place in places[len(places) - len(places) % 4 :]:
        one = block[place][left:right]
        for column in range(right - left):
            spreads[column] += (np.float64(one[column]) - means[column]) ** 2


@_compiled
def ternary_rows(
    block: np.ndarray,
    mean: np.ndarray,
    deviation: np.ndarray,
    low: float,
    high: float,
    result: np.ndarray,
    first: int,
    last: int,
) -> None:
    """Write -1, 0 or +1 for the z-scores of some rows; 0 where the deviation is 0.

    A row does not depend on the others, so the number of threads changes no bit.
    """
    for row in range(first, last):
        values, ternary = block[row], result[row]
        for column in range(len(mean)):
            varies = deviation[column] > 0
            score = (np.float64(values[column]) - mean[column]) / (deviation[column] if varies else 1.0)
            ternary[column] = np.int8(varies and score > high) - np.int8(varies and score < low)


@_compiled
def count_scores(
    block: np.ndarray, mean: np.ndarray, deviation: np.ndarray, reach: int, steps: int, counts: np.ndarray
) -> None:
    """Count the z-scores of a block in bins of 1 / `steps`; the outermost bins count everything beyond.

    Every deviation is above zero. The bins go from -reach to +reach, so there are 2 * reach * steps counts.
    """
    for row in range(len(block)):
        for column in range(len(mean)):
            score = (np.float64(block[row, column]) - mean[column]) / deviation[column]
            place = np.floor((score + reach) * steps)
            counts[int(min(max(place, 0.0), len(counts) - 1.0))] += 1
