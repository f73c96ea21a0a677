import numpy as np
import pytest

from fne.ranking.metrics import sum_of_recalls, summarize


def test_hand_made_ranks_give_hand_made_recalls():
    metrics = summarize(np.array([1, 1, 2, 5, 6, 10, 11, 100]))
    assert (metrics["R@1"], metrics["R@5"], metrics["R@10"]) == (25.0, 50.0, 75.0)
    assert metrics["mean_rank"] == 17.0


@pytest.mark.parametrize(("ranks", "median"), [([1, 2], 1), ([1, 2, 3], 2), ([2, 3, 5, 8], 4), ([7], 7)])
def test_the_median_is_rounded_as_in_the_published_codes(ranks, median):
    assert summarize(np.array(ranks))["median_rank"] == median


def test_a_perfect_model_sums_to_six_hundred():
    perfect = summarize(np.ones(3, dtype=np.int64))
    assert sum_of_recalls(perfect, perfect) == 600
