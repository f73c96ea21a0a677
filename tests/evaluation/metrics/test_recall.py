from itertools import permutations

import numpy as np
import pytest

from fne.evaluation.metrics.recall import (
    chance_of_mean,
    chance_of_median,
    chance_of_recall,
    mean_over_folds,
    sum_of_recalls,
    summarize,
)


def test_recalls_equal_those_computed_by_hand():
    metrics = summarize(np.array([1, 1, 2, 5, 6, 10, 11, 100]))
    assert (metrics["R@1"], metrics["R@5"], metrics["R@10"]) == (25.0, 50.0, 75.0)
    assert metrics["mean_rank"] == 17.0


@pytest.mark.parametrize(("ranks", "median"), [([1, 2], 1), ([1, 2, 3], 2), ([2, 3, 5, 8], 4), ([7], 7)])
def test_the_median_is_rounded_as_in_published_code(ranks, median):
    assert summarize(np.array(ranks))["median_rank"] == median


def test_only_the_requested_recalls_are_returned():
    metrics = summarize(np.array([1, 2, 3, 50]), recalls=[2, 50])
    assert [(name, value) for name, value in metrics.items() if "R@" in name] == [("R@2", 50), ("R@50", 100)]
    assert sum_of_recalls(metrics, metrics) == 300


def test_folds_are_averaged_metric_by_metric():
    folds = [summarize(np.array([1, 4])), summarize(np.array([11]))]
    means = {"R@1": 25, "R@5": 50, "R@10": 50, "median_rank": 6.5, "mean_rank": 6.75}
    assert mean_over_folds(folds) == means


def first_true_ranks(pool: int, true_count: int) -> list[int]:
    orders = permutations(range(pool))
    return [1 + min(order.index(item) for item in range(true_count)) for order in orders]


@pytest.mark.parametrize("true_count", [1, 2, 4])
@pytest.mark.parametrize("k", [1, 2, 5, 6])
def test_recall_by_chance_is_the_fraction_of_orders_with_a_true_item_among_the_first_k(k, true_count):
    ranks = first_true_ranks(6, true_count)
    expected = 100 * np.mean([rank <= k for rank in ranks])
    assert chance_of_recall(k, 6, np.array([true_count])) == pytest.approx(expected)


def test_queries_with_different_numbers_of_true_items_are_averaged():
    expected = (2 * chance_of_recall(2, 6, np.array([1])) + chance_of_recall(2, 6, np.array([3]))) / 3
    assert chance_of_recall(2, 6, np.array([1, 3, 1])) == pytest.approx(expected)


def test_mean_and_median_by_chance_equal_those_over_all_orders():
    ranks = sorted(first_true_ranks(6, 2))
    assert chance_of_mean(6, np.array([2])) == pytest.approx(np.mean(ranks))
    assert chance_of_median(6, np.array([2])) == ranks[len(ranks) // 2 - 1]


def test_large_pools_do_not_overflow():
    assert chance_of_recall(10, 25_000, np.full(5_000, 5)) == pytest.approx(100 * 50 / 25_000, rel=1e-3)
