"""Geometry of the page's charts: numbers in, positions in an SVG of fixed size out.

The template `charts.html` draws what stands here. Colors and fonts come from the page's
style, so that a chart follows its light or dark scheme.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 420, 230
LEFT, RIGHT, TOP, BOTTOM = 42, 408, 22, 188  # the plotting area

Scale = Callable[[float], float]


@dataclass(frozen=True)
class Tick:
    """A labeled position on an axis or along a line."""

    at: float
    label: str


@dataclass(frozen=True)
class Dot:
    """A point worth a look, with the words that a pointer resting on it shows."""

    x: float
    y: float
    words: str


@dataclass(frozen=True)
class Bar:
    """A bar of a histogram, and the height that guessing would give it."""

    x: float
    y: float
    width: float
    chance: float
    label: str
    words: str


@dataclass(frozen=True)
class Chart:
    """Everything the template needs to draw one chart; `summary` is read out instead of it."""

    title: str
    summary: str
    x_label: str
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    line: str = ""
    chance: str = ""
    dots: Sequence[Dot] = ()
    bars: Sequence[Bar] = ()
    phases: Sequence[Tick] = ()
    best: Tick | None = None
    best_label_at: float = 0


def linear(low: float, high: float, start: float, end: float) -> Scale:
    """Return the map from [low, high] to [start, end]; a single value goes to the middle."""
    if high == low:
        return lambda value: (start + end) / 2
    return lambda value: round(start + (value - low) / (high - low) * (end - start), 2)


def logarithmic(low: float, high: float, start: float, end: float) -> Scale:
    """Return the map from [low, high] to [start, end] with equal ratios at equal distances."""
    scale = linear(math.log(low), math.log(high), start, end)
    return lambda value: scale(math.log(value))


def round_steps(low: float, high: float, whole: bool = False) -> list[float]:
    """Return up to seven evenly spaced round numbers that cover or, if `whole`, fit [low, high].

    Example:
        >>> round_steps(3, 97)
        [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]
        >>> round_steps(0, 3, whole=True)
        [0.0, 1.0, 2.0, 3.0]
    """
    rough = (high - low) / 5 or 1
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    if whole:
        step = max(1, round(step))
        first, last = math.ceil(low / step), math.floor(high / step)
    else:
        first, last = math.floor(low / step), math.ceil(high / step)
    return [float(f"{index * step:.12g}") for index in range(first, last + 1)]


def path(points: Mapping[float, float] | Mapping[int, float], x: Scale, y: Scale) -> str:
    """Return the SVG path through `points`, from left to right."""
    return "M" + " L".join(f"{x(key):g} {y(value):g}" for key, value in points.items())


def compact(number: float) -> str:
    """Write a number for an axis.

    Example:
        >>> [compact(number) for number in (0.05, 20, 1500, 25000)]
        ['0.05', '20', '1.5k', '25k']
    """
    return f"{number / 1000:.3g}k" if 1000 <= number < 1_000_000 else f"{number:g}"
