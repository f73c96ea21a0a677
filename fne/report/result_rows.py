"""The results table of the report page: each metric in both directions, with its 95 % interval.

It also has the score by chance and, if the run repeats an experiment of the paper, what the paper printed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fne.evaluation.baseline import Baseline
from fne.evaluation.metrics.collapse import not_started
from fne.evaluation.metrics.recall import (
    chance_of_mean,
    chance_of_median,
    chance_of_recall,
    small_split_warning,
)
from fne.experiments.runs import DIRECTIONS
from fne.experiments.tables import PaperRow
from fne.report.facts import settings_of
from fne.report.sources import Direction, Evaluation, Interval
from fne.store.artifact import Lineage

TUNED_TO_NOTHING = (
    "training did not start: after the fine-tuning, the validation rsum of {rsum:.1f} is not clearly above "
    "chance ({chance:.1f}). Train longer before it (train.epochs), or lower finetune.learning_rate"
)


@dataclass(frozen=True)
class Meter:
    """A recall drawn as a bar; all values in percent."""

    value: float
    chance: float
    interval: Interval


@dataclass(frozen=True)
class TableCell:
    """One formatted value of the table."""

    value: str
    interval: str
    chance: str
    published: str = ""
    meter: Meter | None = None
    baseline: str = ""


@dataclass(frozen=True)
class Row:
    """One metric, with one cell per direction or a single cell for both."""

    name: str
    explanation: str
    cells: list[TableCell]


def results_table(
    evaluation: Evaluation, paper_row: PaperRow | None = None, baseline: Baseline | None = None
) -> list[Row]:
    """Return the rows of the table: recalls, median and mean rank, rsum with the closed-form baseline."""
    directions = {name: getattr(evaluation, name) for name in DIRECTIONS}
    figures = paper_row.figures if paper_row else {}
    chances = {name: _chances(direction) for name, direction in directions.items()}

    def row(metric: str, explanation: str, form: str) -> Row:
        cells = [
            _cell(direction, metric, chances[name][metric], figures.get(name, {}).get(metric), form)
            for name, direction in directions.items()
        ]
        return Row(metric.replace("_", " ").capitalize(), explanation, cells)

    recalls = [
        row(f"R@{k}", "found first" if k == 1 else f"among the first {k}", "{:.1f} %")
        for k in evaluation.image_to_text.recalls
    ]
    lower = "lower is better"
    rsum = TableCell(
        f"{evaluation.rsum:.1f}",
        _format_interval(evaluation.rsum_interval, "{:.1f}"),
        f"{_chance_of_sum(evaluation):.1f}",
        baseline=_format_baseline(evaluation.rsum, baseline),
    )
    return [
        *recalls,
        row("median_rank", lower, "{:g}"),
        row("mean_rank", lower, "{:.1f}"),
        Row("rsum", "all recalls added", [rsum]),
    ]


def start_sentence(
    lineage: Lineage, training: Mapping[str, Any], tuning: Mapping[str, Any] | None
) -> str | None:
    """Return what happened to a training run that did not start and what helps, or None if it started.

    `training` and `tuning` are the contents of their metrics files, the latter if the model was tuned.
    """
    if tuning:
        validation = tuning["validation"]
        return None if tuning["started"] else TUNED_TO_NOTHING.format(**validation)
    if training["started"]:
        return None
    model, validation = settings_of(lineage, "model"), training["validation"]
    losses = model.get("loss", [])
    return not_started(
        validation["rsum"],
        validation["chance"],
        losses if isinstance(losses, list) else [losses],
        training["epochs"],
        training["updates"],
        training["collapsed"],
        model.get("method", "steps"),
    )


def small_split(evaluation: Evaluation) -> str | None:
    """Return a warning if so few images were scored that the sum of recalls says little, or None."""
    images = evaluation.text_to_image.pool
    recalls = len(evaluation.image_to_text.recalls)
    return small_split_warning(images, _chance_of_sum(evaluation), recalls)


def _chance_of_sum(evaluation: Evaluation) -> float:
    directions = (evaluation.image_to_text, evaluation.text_to_image)
    return sum(chance_recall(direction, k) for direction in directions for k in direction.recalls)


def _format_baseline(rsum: float, baseline: Baseline | None) -> str:
    if baseline is None:
        return ""
    if baseline.rsum is None:
        return f"no closed-form baseline: {baseline.reason}"
    below = "; this model is below its baseline" if rsum < baseline.rsum else ""
    interval = f"({baseline.low:.1f} to {baseline.high:.1f})"
    return f"closed form with the same features {baseline.rsum:.1f} {interval}{below}"


def chance_recall(direction: Direction, k: int) -> float:
    """Return the recall@k by chance in percent, as the mean over the folds; 100 where k covers the pool."""
    return _over_folds(direction, lambda pool, counts: chance_of_recall(min(k, pool), pool, counts))


def _chances(direction: Direction) -> dict[str, float]:
    """Return the value of each metric for chance."""
    recalls = {f"R@{k}": chance_recall(direction, k) for k in direction.recalls}
    return recalls | {
        "median_rank": _over_folds(direction, chance_of_median),
        "mean_rank": _over_folds(direction, chance_of_mean),
    }


def _over_folds(direction: Direction, chance: Callable[[int, np.ndarray], float]) -> float:
    pools = np.bincount(direction.pool_folds)  # (folds,)
    return float(
        np.mean(
            [
                chance(int(pool), direction.true_counts[direction.folds == fold])
                for fold, pool in enumerate(pools)
            ]
        )
    )


def _cell(direction: Direction, metric: str, chance: float, published: float | None, form: str) -> TableCell:
    value, interval = direction.metrics[metric], direction.intervals[metric]
    return TableCell(
        form.format(value),
        _format_interval(interval, form),
        form.format(chance),
        form.format(published) if published is not None else "",
        Meter(value, chance, interval) if metric.startswith("R@") else None,
    )


def _format_interval(interval: Interval, form: str) -> str:
    low, high = interval
    return f"{form.format(low).removesuffix(' %')} to {form.format(high)}"
