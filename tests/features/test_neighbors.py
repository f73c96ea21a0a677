import numpy as np
import pytest

from fne.features import neighbors
from fne.features.neighbors import nearest, ternary_scores
from fne.store.ternary import pack


def ternary(rows: int, features: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-1, 2, (rows, features), dtype=np.int8)


def products(queries: np.ndarray, rows: np.ndarray) -> np.ndarray:
    return queries.astype(np.int64) @ rows.T.astype(np.int64)


@pytest.mark.parametrize("features", [1, 7, 8, 9, 63, 64, 65, 257, 12415, 12416, 12417, 12544, 12545, 25089])
def test_scores_are_the_dot_products(features):
    queries, rows = ternary(3, features, 0), ternary(19, features, 1)
    scores = ternary_scores(pack(queries), pack(rows), features)
    assert scores.dtype == np.int32
    assert np.array_equal(scores, products(queries, rows))


@pytest.mark.parametrize("value", [-1, 1])
def test_the_highest_and_lowest_products_are_exact(value):
    ones = np.ones((1, 12416), dtype=np.int8)
    assert ternary_scores(pack(ones), pack(value * ones), 12416).tolist() == [[value * 12416]]


@pytest.mark.parametrize(("queries", "rows"), [(0, 3), (3, 0)])
def test_nothing_has_no_scores(queries, rows):
    assert ternary_scores(pack(ternary(queries, 9, 0)), pack(ternary(rows, 9, 0)), 9).shape == (queries, rows)


@pytest.mark.parametrize("k", [1, 4, 41, 100])
def test_the_nearest_come_in_order_and_ties_by_position(k, monkeypatch):
    # Few features: many ties. Small blocks: several of them in both directions.
    monkeypatch.setattr(neighbors, "QUERIES", 2)
    monkeypatch.setattr(neighbors, "ROWS", 16)
    queries, rows = ternary(5, 6, 0), ternary(41, 6, 1)
    positions, scores = nearest(pack(queries), pack(rows), 6, k)
    expected = products(queries, rows)
    order = np.argsort(-expected, axis=1, kind="stable")[:, :k]
    assert np.array_equal(positions, order)
    assert np.array_equal(scores, np.take_along_axis(expected, order, axis=1))


def test_no_rows_have_no_nearest():
    positions, scores = nearest(pack(ternary(2, 9, 0)), pack(ternary(0, 9, 0)), 9, 3)
    assert (positions.shape, scores.shape) == ((2, 0), (2, 0))


def test_rows_of_another_width_are_refused():
    with pytest.raises(ValueError, match=r"rows of 9 ternary values are 4 bytes, got uint8 \(2, 2\)"):
        nearest(pack(ternary(2, 9, 0)), pack(ternary(2, 8, 0)), 9, 3)
