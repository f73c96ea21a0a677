import numpy as np
import pytest

from benchmarks.finetuning import rsum, rsum_difference
from fne.metrics.intervals import Ranked


def ranked(image_ranks):
    ranks = np.array(image_ranks)
    return Ranked(ranks, ranks, np.arange(len(ranks)), np.zeros(len(ranks), dtype=np.int64))


def test_a_difference_is_measured_over_the_same_images():
    before, after = ranked([1, 2, 7, 30]), ranked([1, 1, 4, 30])
    value, low, high = rsum(before)
    assert value == pytest.approx(2 * (25 + 50 + 75))
    assert low < value < high
    low, high = rsum_difference(before, after)
    assert 0 <= low < rsum(after)[0] - value < high
    assert rsum_difference(before, before) == (0.0, 0.0)
