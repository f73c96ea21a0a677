"""What `fne.evaluation.metrics.rank_kernels` computes, in NumPy, for few scores: its loops load slowly.

The functions have the arguments of the compiled ones, and the same results.
"""

import numpy as np


def count_better(
    scores: np.ndarray,
    row_true: np.ndarray,
    column_true: np.ndarray,
    row_better: np.ndarray,
    row_tied: np.ndarray,
    column_better: np.ndarray,
    column_tied: np.ndarray,
) -> None:
    """Count, per row and per column, the scores that are not below the true score and those that equal it."""
    for axis, true, better, tied in (
        (1, row_true[:, None], row_better, row_tied),
        (0, column_true, column_better, column_tied),
    ):
        better += (scores >= true).sum(axis=axis, dtype=np.int32)
        tied += (scores == true).sum(axis=axis, dtype=np.int32)


def keep_best(
    scores: np.ndarray,
    row_numbers: np.ndarray,
    column_numbers: np.ndarray,
    row_best: np.ndarray,
    row_best_scores: np.ndarray,
    column_best: np.ndarray,
    column_best_scores: np.ndarray,
) -> None:
    """Put the scores (rows, columns) of a block into the top matches of each row and each column."""
    for new, numbers, best, best_scores in (
        (scores, column_numbers, row_best, row_best_scores),
        (scores.T, row_numbers, column_best, column_best_scores),
    ):
        numbers = np.concatenate([best, np.broadcast_to(numbers, new.shape)], axis=1)
        best[:], best_scores[:] = top_matches(
            numbers, np.concatenate([best_scores, new], axis=1), best.shape[1]
        )


def top_matches(numbers: np.ndarray, scores: np.ndarray, top: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the best of each row (queries, top), best first; of equal scores, the smaller number wins."""
    chosen = np.lexsort((numbers, -scores), axis=1)[:, :top]
    return np.take_along_axis(numbers, chosen, axis=1), np.take_along_axis(scores, chosen, axis=1)
