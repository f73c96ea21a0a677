"""What guessing scores, against every possible order of a small pool."""

from itertools import permutations

import numpy as np
import pytest

from fne.ranking.chance import chance_of_mean, chance_of_median, chance_of_recall


def first_true_ranks(pool: int, true_count: int) -> list[int]:
    orders = permutations(range(pool))
    return [1 + min(order.index(item) for item in range(true_count)) for order in orders]


@pytest.mark.parametrize("true_count", [1, 2, 4])
@pytest.mark.parametrize("k", [1, 2, 5, 6])
def test_recall_by_chance_is_the_share_of_all_orders_with_a_true_item_among_the_first_k(k, true_count):
    ranks = first_true_ranks(6, true_count)
    expected = 100 * np.mean([rank <= k for rank in ranks])
    assert chance_of_recall(k, 6, np.array([true_count])) == pytest.approx(expected)


def test_queries_with_different_numbers_of_true_items_are_averaged():
    expected = (2 * chance_of_recall(2, 6, np.array([1])) + chance_of_recall(2, 6, np.array([3]))) / 3
    assert chance_of_recall(2, 6, np.array([1, 3, 1])) == pytest.approx(expected)


def test_mean_and_median_by_chance_are_those_of_all_orders():
    ranks = sorted(first_true_ranks(6, 2))
    assert chance_of_mean(6, np.array([2])) == pytest.approx(np.mean(ranks))
    assert chance_of_median(6, np.array([2])) == ranks[len(ranks) // 2 - 1]


def test_one_true_image_among_n_is_found_within_k_by_chance_k_over_n():
    assert chance_of_recall(10, 1000, np.ones(5, int)) == pytest.approx(1.0)


def test_big_pools_do_not_overflow():
    assert chance_of_recall(10, 25_000, np.full(5_000, 5)) == pytest.approx(100 * 50 / 25_000, rel=1e-3)
