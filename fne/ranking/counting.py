"""Compiled loops over a block of scores: how many are better than the true one, and which are best.

A block is read once for both directions. Nothing is sorted: a rank is a count, and the
few best of a query are a short list into which a better score is inserted, which
happens rarely after the first blocks.

The module needs numba and is imported only when scores are to be ranked.
"""

import numba
import numpy as np

# No fastmath: it would take it for granted that no score is NaN or infinite.
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
    """Count, for each row and column, the scores that are not below its true one and those that equal it.

    Args:
        scores: (rows, columns); NaN counts as neither.
        row_true: (rows), what the scores of a row are compared with.
        column_true: (columns).
        row_better: (rows), int32, added to, as are the others.
        row_tied: (rows).
        column_better: (columns).
        column_tied: (columns).
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
def count_nan(scores: np.ndarray) -> int:
    """Return how many scores are NaN."""
    rows, columns = scores.shape
    found = 0
    for row in range(rows):
        unequal = np.int32(0)
        for column in range(columns):
            unequal += np.int32(scores[row, column] != scores[row, column])
        found += int(unequal)
    return found


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
    """Insert the scores of a block into the lists of the best for each row and each column.

    Of equal scores, the one with the smaller number is better, in whatever order blocks come.

    Args:
        scores: (rows, columns).
        row_numbers: (rows), what a column's list names a row by.
        column_numbers: (columns), what a row's list names a column by.
        row_best: (rows, top), numbers of columns, best first; changed, as are the others.
        row_best_scores: (rows, top).
        column_best: (columns, top), numbers of rows.
        column_best_scores: (columns, top).
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
