"""The table of results: each metric in both directions, with what says how much it means.

Beside a figure stand its 95 % interval, what guessing would score and, if the run may
stand in a row of the paper, what the paper printed.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from fne.report.evaluation import Direction, Evaluation, Interval
from fne.report.guessing import guessed_mean, guessed_median, guessed_recall

DIRECTIONS = ("image_to_text", "text_to_image")


@dataclass(frozen=True)
class Printed:
    """The row of the paper with the same settings: `figures[direction][metric]`."""

    source: str
    notes: list[str]
    figures: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Meter:
    """A share drawn as a bar; all in percent."""

    value: float
    chance: float
    interval: Interval


@dataclass(frozen=True)
class Cell:
    """One figure in words."""

    value: str
    interval: str
    chance: str
    printed: str = ""
    meter: Meter | None = None


@dataclass(frozen=True)
class Row:
    """One metric, with a cell for each direction or one for both."""

    name: str
    words: str
    cells: list[Cell]


def results_table(evaluation: Evaluation, printed: Printed | None = None) -> list[Row]:
    """Return the rows of the table: recalls, median and mean rank, rsum."""
    ways = {name: getattr(evaluation, name) for name in DIRECTIONS}
    figures = printed.figures if printed else {}
    chances = {name: _chances(way) for name, way in ways.items()}

    def row(metric: str, words: str, form: str) -> Row:
        cells = [
            _cell(way, metric, chances[name][metric], figures.get(name, {}).get(metric), form)
            for name, way in ways.items()
        ]
        return Row(metric.replace("_", " ").capitalize(), words, cells)

    recalls = [
        row(f"R@{k}", "found first" if k == 1 else f"among the first {k}", "{:.1f} %")
        for k in evaluation.image_to_text.recalls
    ]
    lower = "lower is better"
    rsum = Cell(
        f"{evaluation.rsum:.1f}",
        _interval_in_words(evaluation.rsum_interval, "{:.1f}"),
        f"{sum(sum(chance[f'R@{k}'] for k in ways[name].recalls) for name, chance in chances.items()):.1f}",
    )
    return [
        *recalls,
        row("median_rank", lower, "{:g}"),
        row("mean_rank", lower, "{:.1f}"),
        Row("rsum", "all recalls added", [rsum]),
    ]


def _chances(way: Direction) -> dict[str, float]:
    recalls = {f"R@{k}": guessed_recall(way, k) for k in way.recalls}
    return recalls | {"median_rank": guessed_median(way), "mean_rank": guessed_mean(way)}


def _cell(way: Direction, metric: str, chance: float, printed: float | None, form: str) -> Cell:
    value, interval = way.metrics[metric], way.intervals[metric]
    return Cell(
        form.format(value),
        _interval_in_words(interval, form),
        form.format(chance),
        form.format(printed) if printed is not None else "",
        Meter(value, chance, interval) if metric.startswith("R@") else None,
    )


def _interval_in_words(interval: Interval, form: str) -> str:
    low, high = interval
    return f"{form.format(low).removesuffix(' %')} to {form.format(high)}"
