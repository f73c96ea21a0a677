import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fne.features.statistics import Statistics, fit, standardize


def in_blocks(rows: np.ndarray, size: int) -> list[np.ndarray]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]


@given(st.integers(1, 40), st.integers(1, 7), st.integers(0, 2**32 - 1))
def test_blocks_of_any_size_give_what_pure_python_gives(count, size, seed):
    rows = np.random.default_rng(seed).normal(1e3, 3.0, (count, 3)).astype(np.float32)
    fitted = fit(in_blocks(rows, size))
    for column in range(3):
        values = [float(value) for value in rows[:, column]]
        assert fitted.mean[column] == pytest.approx(statistics.fmean(values), rel=1e-12)
        assert fitted.deviation[column] == pytest.approx(statistics.pstdev(values), rel=1e-9, abs=1e-12)


def test_a_small_variance_far_from_zero_survives():
    rows = np.array([[1e4], [1e4 + 0.02]], dtype=np.float64)
    assert fit(in_blocks(rows, 1)).deviation[0] == pytest.approx(0.01, rel=1e-6)


def test_a_constant_feature_has_no_deviation_at_all():
    rows = np.full((17, 2), 0.1, dtype=np.float32)
    assert fit(in_blocks(rows, 5)).deviation.tolist() == [0.0, 0.0]


def test_a_constant_feature_is_ordinary_even_where_a_new_image_differs():
    ordinary = Statistics(np.array([5.0]), np.array([0.0]), 2)
    assert standardize(np.array([[5.0], [9.0]]), ordinary).tolist() == [[0.0], [0.0]]


def test_no_rows_cannot_be_fitted():
    with pytest.raises(ValueError, match="there are no rows to fit"):
        fit([])
