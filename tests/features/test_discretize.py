import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fne.features.discretize import discretize
from fne.features.statistics import Statistics, standardize


def plainly(block: np.ndarray, statistics: Statistics, low: float, high: float) -> np.ndarray:
    """The definition: compare z-scores, and leave what never varies alone."""
    scores = standardize(block, statistics)
    return np.where(statistics.varies, (scores > high).astype(np.int8) - (scores < low), 0).astype(np.int8)


@given(st.lists(st.floats(-3, 3), min_size=1))
def test_every_score_is_judged_as_the_paper_says(scores):
    count = len(scores)
    ordinary = Statistics(np.zeros(count), np.ones(count), [])
    expected = [1 if score > 0.15 else -1 if score < -0.25 else 0 for score in scores]
    assert discretize(np.array([scores]), ordinary, low=-0.25, high=0.15).tolist() == [expected]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(("low", "high"), [(-0.25, 0.15), (0.1, 0.2), (-0.2, -0.1)])
def test_the_compiled_loop_equals_the_definition_bit_for_bit(dtype, low, high):
    generator = np.random.default_rng(0)
    block = generator.normal(0.3, 0.4, (57, 203)).astype(dtype)
    deviation = generator.uniform(0.1, 1.0, 203)
    deviation[::10] = 0.0
    ordinary = Statistics(generator.normal(0.3, 0.1, 203), deviation, [])
    assert np.array_equal(discretize(block, ordinary, low, high), plainly(block, ordinary, low, high))


@pytest.mark.parametrize(("low", "high"), [(-0.25, 0.15), (-1 / 3, 0.1)])
def test_values_on_a_threshold_and_next_to_it_equal_the_definition(low, high):
    generator = np.random.default_rng(1)
    ordinary = Statistics(generator.normal(size=500), generator.uniform(0.01, 3.0, 500), [])
    at = np.stack([ordinary.mean + bound * ordinary.deviation for bound in (low, high)])
    block = np.concatenate([at, np.nextafter(at, -np.inf), np.nextafter(at, np.inf)])
    judged = discretize(block, ordinary, low, high)
    assert np.array_equal(judged, plainly(block, ordinary, low, high))
    assert len(np.unique(judged)) == 3


def test_a_constant_feature_is_ordinary_whatever_the_thresholds():
    ordinary = Statistics(np.array([5.0]), np.array([0.0]), [])
    assert discretize(np.array([[5.0], [9.0]]), ordinary, low=0.5, high=0.7).tolist() == [[0], [0]]


def test_the_number_of_threads_changes_nothing():
    block = np.random.default_rng(0).normal(size=(101, 33)).astype(np.float32)
    ordinary = Statistics(np.zeros(33), np.ones(33), [])
    before = numba.get_num_threads()
    found = []
    for threads in (1, before):
        numba.set_num_threads(threads)
        found.append(discretize(block, ordinary, -0.25, 0.15))
    numba.set_num_threads(before)
    assert np.array_equal(*found)
