import re
from dataclasses import replace

import numpy as np
import pytest

from fne.report.charts import (
    BOTTOM,
    LEFT,
    RIGHT,
    TOP,
    axis_steps,
    learning_curves,
    rank_histogram,
    recall_curve,
)
from fne.report.sources import Direction, History, read_tables
from tests.support.report import write_history


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
def test_every_query_is_counted_in_one_bar_for_any_pool_size(pool):
    ranks = [1, pool, (pool + 1) // 2]
    chart = rank_histogram(direction(ranks, pool))
    assert sum(int(bar.label or 0) for bar in chart.bars) == len(ranks)
    assert len(chart.bars) == len(chart.x_ticks) <= 10
    assert all(TOP <= bar.y <= BOTTOM and TOP <= bar.chance <= BOTTOM for bar in chart.bars)


@pytest.mark.parametrize("pool", [1, 2, 50, 25_000])
def test_the_recall_curve_stays_in_the_plotting_area_and_ends_at_100_percent(pool):
    chart = recall_curve(direction([1, pool], pool))
    numbers = [float(number) for number in re.findall(r"[\d.]+", chart.line)]
    assert all(LEFT <= x <= RIGHT for x in numbers[::2])
    assert numbers[-1] == TOP
    assert all(dot.tooltip.startswith("R@") for dot in chart.dots)


def test_a_k_larger_than_the_pool_is_not_marked():
    assert len(recall_curve(direction([1, 2], 7)).dots) == 2


@pytest.mark.parametrize(("low", "high"), [(0, 0), (5, 5), (-3, 4), (0, 1e-6), (99, 101), (0, 1e9)])
def test_at_most_8_axis_steps_cover_the_values(low, high):
    steps = axis_steps(low, high)
    assert steps[0] <= low <= high <= steps[-1]
    assert len(steps) <= 8


def test_a_history_of_one_epoch_is_drawn_as_a_dot(tmp_path):
    write_history(tmp_path, {"train/loss": [0.0], "val/rsum": [17.0]})
    loss, rsum = learning_curves(read_tables(tmp_path / "history"))
    assert len(loss.dots) == len(rsum.dots) == 1
    assert [tick.label for tick in loss.x_ticks] == ["1"]


def test_the_best_epoch_and_the_phases_are_marked_on_every_curve(tmp_path):
    metrics = {"train/loss": [3, 2, 1, 1], "val/rsum": [1, 2, 3, 2], "train/phase": [1, 1, 2, 2]}
    write_history(tmp_path, metrics)
    for chart in learning_curves(read_tables(tmp_path / "history")):
        assert chart.best is not None
        assert chart.best.label == "best: epoch 3"
        assert [phase.label for phase in chart.phases] == ["phase 1", "phase 2"]


def test_short_phases_are_labeled_by_their_number_only(tmp_path):
    write_history(tmp_path, {"train/loss": [1] * 20, "train/phase": [1 + step // 2 for step in range(20)]})
    [chart] = learning_curves(read_tables(tmp_path / "history"))
    assert [phase.label for phase in chart.phases] == [str(phase) for phase in range(1, 11)]


def test_the_label_of_the_best_epoch_does_not_overlap_the_curve(tmp_path):
    write_history(tmp_path, {"train/loss": [9, 5, 1], "val/rsum": [1, 5, 9]})
    loss, rsum = learning_curves(read_tables(tmp_path / "history"))
    middle = (TOP + BOTTOM) / 2
    assert loss.best_label_at < middle < rsum.best_label_at


def test_the_validation_stands_beside_chance_and_baseline_and_no_other_curve_does(tmp_path):
    write_history(tmp_path, {"train/loss": [3, 2], "val/rsum": [100.0, 300.0], "val/mean": [1.0, 2.0]})
    levels = {"chance": {"rsum": 10.0, "loss": 1.0}, "baseline": {"rsum": 400.0}}
    loss, rsum, mean = learning_curves(replace(read_tables(tmp_path / "history"), levels=levels))
    assert [(level.kind, level.label) for level in rsum.levels] == [
        ("chance", "chance 10"),
        ("baseline", "baseline 400"),
    ]
    chance, baseline = (level.at for level in rsum.levels)
    assert TOP <= baseline < rsum.dots[0].y < chance <= BOTTOM
    assert rsum.summary.endswith("chance: 10; baseline: 400")
    assert all(level.label_at < level.at for level in rsum.levels)
    close = {"chance": {"rsum": 390.0}, "baseline": {"rsum": 400.0}}
    _, rsum, _ = learning_curves(replace(read_tables(tmp_path / "history"), levels=close))
    chance, baseline = rsum.levels
    assert baseline.label_at < baseline.at < chance.at < chance.label_at
    assert list(loss.levels) == list(mean.levels) == []


def test_steps_are_labeled_with_the_unit_of_the_history():
    history = History({"val/rsum": {1: 1.0, 2: 3.0}}, unit="validation")
    [chart] = learning_curves(history)
    assert (chart.x_label, chart.best.label) == ("validation", "best: validation 2")
    assert chart.phases == []
    assert learning_curves(History({})) == []
