"""Compiled loops over blocks of activations (images, features).

Each works on a run of columns or of rows, so that threads can share a block, and what a
column or row becomes does not depend on the run: the number of threads changes no bit.

The module needs numba, which takes a second to import, so it is imported where it is used.
"""

import numba
import numpy as np

# Rows and columns that stay in the cache of a core while they are read twice.
ROWS = 128
COLUMNS = 512

# No fastmath: sums are rounded in the order in which they stand here.
_compiled = numba.njit(cache=True, nogil=True)


@_compiled
def add_rows(
    block: np.ndarray, count: int, mean: np.ndarray, squares: np.ndarray, first: int, last: int
) -> None:
    """Add rows to the mean and the summed squares of deviations of some columns.

    The mean of a few rows is taken first and their deviations from it after that, while
    they are in the cache; then they are merged with what came before (Chan et al., 1979).

    Args:
        block: (rows, columns).
        count: how many rows were added before.
        mean: (columns,), brought up to date.
        squares: (columns,), brought up to date.
        first: the first column.
        last: the column after the last one.
    """
    local = np.empty(COLUMNS, dtype=np.float64)
    spread = np.empty(COLUMNS, dtype=np.float64)
    for top in range(0, len(block), ROWS):
        rows = min(ROWS, len(block) - top)
        before = count + top
        share = rows / (before + rows)
        for left in range(first, last, COLUMNS):
            right = min(left + COLUMNS, last)
            _write_means(block, top, top + rows, left, right, local)
            _write_spreads(block, top, top + rows, left, right, local, spread)
            for column in range(right - left):
                delta = local[column] - mean[left + column]
                # Before the first rows there is no mean to move from.
                mean[left + column] = local[column] if before == 0 else mean[left + column] + delta * share
                squares[left + column] += spread[column] + delta * delta * (before * share)


@_compiled
def _write_means(block: np.ndarray, top: int, bottom: int, left: int, right: int, means: np.ndarray) -> None:
    """Write the mean of some columns over some rows.

    The rows are shifted by the first of them, so that the mean of a constant is the constant itself.
    """
    means[:] = 0.0
    shift = block[top][left:right]
    # Four rows at once: the sums are fetched and put back less often.
    for row in range(top, bottom - 3, 4):
        one, two = block[row][left:right], block[row + 1][left:right]
        three, four = block[row + 2][left:right], block[row + 3][left:right]
        for column in range(right - left):
            base = np.float64(shift[column])
            upper = (np.float64(one[column]) - base) + (np.float64(two[column]) - base)
            lower = (np.float64(three[column]) - base) + (np.float64(four[column]) - base)
            means[column] += upper + lower
    for row in range(bottom - (bottom - top) % 4, bottom):
        one = block[row][left:right]
        for column in range(right - left):
            means[column] += np.float64(one[column]) - np.float64(shift[column])
    for column in range(right - left):
        means[column] = np.float64(shift[column]) + means[column] / (bottom - top)


@_compiled
def _write_spreads(
    block: np.ndarray, top: int, bottom: int, left: int, right: int, means: np.ndarray, spreads: np.ndarray
) -> None:
    """Write the summed squares of the deviations of some columns from their means over some rows."""
    spreads[:] = 0.0
    for row in range(top, bottom - 3, 4):
        one, two = block[row][left:right], block[row + 1][left:right]
        three, four = block[row + 2][left:right], block[row + 3][left:right]
        for column in range(right - left):
            center = means[column]
            upper = (np.float64(one[column]) - center) ** 2 + (np.float64(two[column]) - center) ** 2
            lower = (np.float64(three[column]) - center) ** 2 + (np.float64(four[column]) - center) ** 2
            spreads[column] += upper + lower
    for row in range(bottom - (bottom - top) % 4, bottom):
        one = block[row][left:right]
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
    """Write -1, 0 or +1 for the z-scores of some rows; 0 where the deviation is 0."""
    for row in range(first, last):
        values, judged = block[row], result[row]
        for column in range(len(mean)):
            varies = deviation[column] > 0
            score = (np.float64(values[column]) - mean[column]) / (deviation[column] if varies else 1.0)
            judged[column] = np.int8(varies and score > high) - np.int8(varies and score < low)


@_compiled
def count_scores(
    block: np.ndarray, mean: np.ndarray, deviation: np.ndarray, reach: int, steps: int, counts: np.ndarray
) -> None:
    """Count the z-scores of a block in bins of 1 / `steps`; the outermost bins take what lies beyond.

    Args:
        block: (rows, columns), all of them with a deviation.
        mean: (columns,).
        deviation: (columns,).
        reach: the bins go from -reach to +reach.
        steps: how many bins there are from one deviation to the next.
        counts: (2 * reach * steps,), brought up to date.
    """
    for row in range(len(block)):
        for column in range(len(mean)):
            score = (np.float64(block[row, column]) - mean[column]) / deviation[column]
            place = np.floor((score + reach) * steps)
            counts[int(min(max(place, 0.0), len(counts) - 1.0))] += 1
