import numpy as np
import pytest

from fne.ranking.metrics import mean_over_folds, sum_of_recalls, summarize


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


def test_recalls_are_those_that_are_asked_for():
    metrics = summarize(np.array([1, 2, 3, 50]), recalls=[2, 50])
    assert {name: value for name, value in metrics.items() if name.startswith("R@")} == {
        "R@2": 50,
        "R@50": 100,
    }
    assert sum_of_recalls(metrics, metrics) == 300


def test_folds_are_averaged_metric_by_metric():
    folds = [summarize(np.array([1, 4])), summarize(np.array([11]))]
    assert mean_over_folds(folds) == {
        "R@1": 25,
        "R@5": 50,
        "R@10": 50,
        "median_rank": 6.5,
        "mean_rank": 6.75,
    }
