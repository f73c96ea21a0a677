"""Geometry of charts with intervals, one row each; the template `intervals.html` draws them.

A row has a value and its interval, and maybe a second one below it, such as that of the baseline. Brackets
beside the rows join those that a comparison cannot separate.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fne.report.charts import Tick, axis_steps, linear

WIDTH, LEFT, RIGHT, TOP, ROW = 720, 210, 600, 14, 34  # in a picture as wide as that of `intervals.html`
STEP = 12  # between the two intervals of a row, and between brackets


@dataclass(frozen=True)
class Interval:
    """A value and the bounds of its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Row:
    """A row of the chart: its name, one or two intervals, and a mark, such as a ceiling."""

    name: str
    intervals: Sequence[Interval]
    mark: float | None = None


@dataclass(frozen=True)
class Drawn:
    """An interval as it is drawn."""

    at: float
    low: float
    high: float
    y: float
    text: str


@dataclass(frozen=True)
class Bracket:
    """A line beside the rows that cannot be separated."""

    x: float
    top: float
    bottom: float
    label: str


@dataclass(frozen=True)
class IntervalChart:
    """Everything the template needs; screen readers read `summary` instead."""

    title: str
    summary: str
    height: float
    ticks: list[Tick]
    names: list[Tick]
    first: list[Drawn]
    second: list[Drawn]
    marks: list[Drawn]
    brackets: list[Bracket]
    zero: float | None  # where 0 is, of differences


def interval_chart(
    title: str, rows: Sequence[Row], groups: Sequence[tuple[int, int]] = (), digits: int = 2
) -> IntervalChart:
    """Draw rows from top to bottom; `groups` are the first and last rows that a bracket joins."""
    values = [bound for row in rows for each in row.intervals for bound in (each.low, each.high)]
    values += [row.mark for row in rows if row.mark is not None]
    steps = axis_steps(min(values), max(values))
    x = linear(steps[0], steps[-1], LEFT, RIGHT)
    middles = [TOP + ROW * (place + 0.5) for place in range(len(rows))]

    def drawn(each: Interval, y: float) -> Drawn:
        text = f"{each.value:.{digits}f} ({each.low:.{digits}f} to {each.high:.{digits}f})"
        return Drawn(x(each.value), x(each.low), x(each.high), round(y, 2), text)

    shifts = [-STEP / 2 if len(row.intervals) > 1 else 0.0 for row in rows]
    together = list(zip(rows, middles, shifts, strict=True))
    first = [drawn(row.intervals[0], y + shift) for row, y, shift in together]
    second = [drawn(row.intervals[1], y - shift) for row, y, shift in together if len(row.intervals) > 1]
    marks = [
        drawn(Interval(row.mark, row.mark, row.mark), y) for row, y, _ in together if row.mark is not None
    ]
    return IntervalChart(
        title=title,
        summary="; ".join(f"{row.name}: {each.text}" for row, each in zip(rows, first, strict=True)),
        height=TOP + ROW * len(rows) + 30,
        ticks=[Tick(x(step), f"{step:g}") for step in steps],
        names=[Tick(y, row.name) for row, y in zip(rows, middles, strict=True)],
        first=first,
        second=second,
        marks=marks,
        brackets=[
            Bracket(
                RIGHT + STEP * (place % 8 + 1),
                middles[start] - ROW / 3,
                middles[end] + ROW / 3,
                f"not separated: {', '.join(row.name for row in rows[start : end + 1])}",
            )
            for place, (start, end) in enumerate(groups)
        ],
        zero=x(0) if steps[0] < 0 < steps[-1] else None,
    )


def interval_of(summary: dict[str, float]) -> Interval:
    """Return the interval of a figure as files have it; an infinite bound is refused.

    Example:
        >>> interval_of({"value": 0.5, "low": 0.4, "high": 0.6})
        Interval(value=0.5, low=0.4, high=0.6)
    """
    found = Interval(*(float(summary[key]) for key in ("value", "low", "high")))
    if not (math.isfinite(found.value) and found.low <= found.high):
        raise ValueError(f"{summary!r} is not an interval")
    return found
