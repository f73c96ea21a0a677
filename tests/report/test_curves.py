"""Charts of ranks: their numbers, and that everything stays inside the picture."""

import re

import numpy as np
import pytest

from fne.report.charts import BOTTOM, LEFT, RIGHT, TOP, round_steps
from fne.report.curves import rank_histogram, recall_curve
from fne.report.evaluation import Direction


def direction(ranks: list[int], pool: int) -> Direction:
    queries = len(ranks)
    best = np.zeros((queries, 1), int)
    return Direction(
        metrics={f"R@{k}": 100 * float(np.mean(np.array(ranks) <= k)) for k in (1, 5, 10)},
        query_ids=[str(query) for query in range(queries)],
        pool_ids=[str(item) for item in range(pool)],
        ranks=np.array(ranks),
        best=best,
        scores=best.astype(np.float32),
        true=best == 1,
        true_counts=np.ones(queries, int),
        answers=None,
        folds=np.zeros(queries, int),
        pool_folds=np.zeros(pool, int),
    )


@pytest.mark.parametrize("pool", [1, 2, 3, 10, 50, 250, 1000, 25_000])
def test_every_query_is_in_one_bar_whatever_the_pool(pool):
    ranks = [1, pool, (pool + 1) // 2]
    chart = rank_histogram(direction(ranks, pool))
    assert sum(int(bar.label or 0) for bar in chart.bars) == len(ranks)
    assert len(chart.bars) == len(chart.x_ticks) <= 10
    assert all(TOP <= bar.y <= BOTTOM and TOP <= bar.chance <= BOTTOM for bar in chart.bars)


@pytest.mark.parametrize("pool", [1, 2, 50, 25_000])
def test_the_recall_curve_ends_at_the_whole_pool_with_100_percent_inside_the_picture(pool):
    chart = recall_curve(direction([1, pool], pool))
    numbers = [float(number) for number in re.findall(r"[\d.]+", chart.line)]
    assert all(LEFT <= x <= RIGHT for x in numbers[::2])
    assert numbers[-1] == TOP
    assert all(dot.words.startswith("R@") for dot in chart.dots)


def test_a_list_longer_than_the_pool_is_not_drawn():
    assert len(recall_curve(direction([1, 2], 7)).dots) == 2


@pytest.mark.parametrize(("low", "high"), [(0, 0), (5, 5), (-3, 4), (0, 1e-6), (99, 101), (0, 1e9)])
def test_axis_steps_cover_the_values_and_are_few(low, high):
    steps = round_steps(low, high)
    assert steps[0] <= low <= high <= steps[-1]
    assert len(steps) <= 8
