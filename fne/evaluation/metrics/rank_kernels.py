"""Compiled loops over a block of scores: counts for the ranks, and the top matches.

A block is read once for both directions, and nothing is sorted. A rank is a count. The top matches of a query
are a short sorted list into which better scores are inserted; after the first blocks, insertions are rare.

The module imports numba, so it is imported only where scores are ranked.
"""

import numba
import numpy as np

# No fastmath: it would assume that no score is NaN or infinite.
_compiled = numba.njit(cache=True, nogil=True)


@_compiled
def count_better(
    scores: np.ndarray,
    row_true: np.ndarray,
    column_true: np.ndarray,
    row_better: np.ndarray,
    row_tied: np.ndarray,
    column_better: np.ndarray,
    column_tied: np.ndarray,
) -> None:
    """Count, per row and per column, the scores that are not below the true score and those that equal it.

    Scores are (rows, columns). NaN is counted as neither. Counts are added to the last four arrays, of int32.
    """
    rows, columns = scores.shape
    for row in range(rows):
        true = row_true[row]
        better, tied = np.int32(0), np.int32(0)
        for column in range(columns):
            better += np.int32(scores[row, column] >= true)
            tied += np.int32(scores[row, column] == true)
        row_better[row] += better
        row_tied[row] += tied
        for column in range(columns):
            column_better[column] += np.int32(scores[row, column] >= column_true[column])
        for column in range(columns):
            column_tied[column] += np.int32(scores[row, column] == column_true[column])


@_compiled
def keep_best(
    scores: np.ndarray,
    row_numbers: np.ndarray,
    column_numbers: np.ndarray,
    row_best: np.ndarray,
    row_best_scores: np.ndarray,
    column_best: np.ndarray,
    column_best_scores: np.ndarray,
) -> None:
    """Insert the scores (rows, columns) of a block into the top matches of each row and each column.

    Of equal scores, the one with the smaller index wins, so the order of the blocks does not matter.

    Args:
        row_numbers: the index of each row in the full matrix, as `column_numbers` of each column.
        row_best: (rows, top), column indices, best first; updated in place, as are the following arrays.
        column_best: (columns, top), row indices.
    """
    rows, columns = scores.shape
    row_last, column_last = row_best.shape[1] - 1, column_best.shape[1] - 1
    for row in range(rows):
        for column in range(columns):
            score = scores[row, column]
            if score >= row_best_scores[row, row_last]:
                _insert(row_best, row_best_scores, row, column_numbers[column], score)
            if score >= column_best_scores[column, column_last]:
                _insert(column_best, column_best_scores, column, row_numbers[row], score)


@_compiled
def _insert(best: np.ndarray, best_scores: np.ndarray, query: int, number: int, score: float) -> None:
    place = best.shape[1]
    while place > 0 and (
        score > best_scores[query, place - 1]
        or (score == best_scores[query, place - 1] and number < best[query, place - 1])
    ):
        place -= 1
    for later in range(best.shape[1] - 1, place, -1):
        best[query, later] = best[query, later - 1]
        best_scores[query, later] = best_scores[query, later - 1]
    if place < best.shape[1]:
        best[query, place] = number
        best_scores[query, place] = score
