import numpy as np
import pytest

from fne.evaluation.metrics import rank_counts, rank_kernels

both = pytest.mark.parametrize("counts_of", [rank_kernels, rank_counts])


def draw(rows: int, columns: int, dtype: type = np.float32) -> np.ndarray:
    """Return few distinct values, so that ties are common."""
    return np.random.default_rng(rows * columns).integers(-3, 4, (rows, columns)).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (3, 40), (40, 3), (17, 33)])
@both
def test_counts_equal_those_of_numpy_and_are_added_to_the_arrays(counts_of, rows, columns, dtype):
    scores, generator = draw(rows, columns, dtype), np.random.default_rng(1)
    row_true = generator.integers(-3, 4, rows).astype(dtype)
    column_true = generator.integers(-3, 4, columns).astype(dtype)
    counts = [np.full(size, 5, np.int32) for size in (rows, rows, columns, columns)]
    counts_of.count_better(scores, row_true, column_true, *counts)
    expected = [
        (scores >= row_true[:, None]).sum(axis=1),
        (scores == row_true[:, None]).sum(axis=1),
        (scores >= column_true).sum(axis=0),
        (scores == column_true).sum(axis=0),
    ]
    for count, plain in zip(counts, expected, strict=True):
        assert (count == plain + 5).all()


@both
def test_nan_counts_as_neither_better_nor_equal_and_infinities_are_compared(counts_of):
    scores = np.array([[np.nan, np.inf, -np.inf]], dtype=np.float32)
    counts = [np.zeros(size, np.int32) for size in (1, 1, 3, 3)]
    counts_of.count_better(scores, np.float32([-np.inf]), np.float32([0, np.inf, np.inf]), *counts)
    assert [count.tolist() for count in counts] == [[2], [1], [0, 1, 0], [0, 1, 0]]


@both
def test_the_top_matches_of_blocks_in_any_order_equal_a_stable_sort(counts_of):
    scores, top = draw(12, 20), 4
    row_best, column_best = np.full((12, top), 99), np.full((20, top), 99)
    row_scores = np.full((12, top), -np.inf, np.float32)
    column_scores = np.full((20, top), -np.inf, np.float32)
    for rows in (slice(8, 12), slice(0, 8)):
        for columns in (slice(7, 20), slice(0, 7)):
            block = np.ascontiguousarray(scores[rows, columns])
            numbers = np.arange(12)[rows], np.arange(20)[columns]
            kept = row_best[rows], row_scores[rows], column_best[columns], column_scores[columns]
            counts_of.keep_best(block, *numbers, *kept)
    assert (row_best == np.argsort(-scores, axis=1, kind="stable")[:, :top]).all()
    assert (column_best == np.argsort(-scores, axis=0, kind="stable")[:top].T).all()
    assert (row_scores == np.take_along_axis(scores, row_best, axis=1)).all()


@both
def test_a_score_of_minus_infinity_can_be_a_top_match(counts_of):
    best, best_scores = np.full((1, 2), 99), np.full((1, 2), -np.inf, np.float32)
    other, other_scores = np.full((2, 1), 99), np.full((2, 1), -np.inf, np.float32)
    scores = np.float32([[-np.inf, -np.inf]])
    counts_of.keep_best(scores, np.array([0]), np.array([0, 1]), best, best_scores, other, other_scores)
    assert (best.tolist(), other.tolist()) == ([[0, 1]], [[0], [0]])
