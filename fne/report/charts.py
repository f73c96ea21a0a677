"""Geometry of the charts on the report page.

Each public chart function takes numbers and returns a `Chart`: positions in an SVG of fixed size, which the
template `charts.html` draws. The style sheet has the colors, so a chart follows the color scheme.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from fne.report.result_rows import chance_recall
from fne.report.sources import LOSS, Direction, History, Series, mean_recall

LEFT, RIGHT, TOP, BOTTOM = 42, 408, 22, 188  # the plotting area in a picture of 420 x 230, as in charts.html
MAX_BARS = 8
PHASE_LABEL_WIDTH = 62  # the text "phase 1"
LEVEL_LABEL = 18  # the height of a label with its margins
# Parts of the names of logged metrics, and how the page writes them.
METRIC_LABELS = {
    "image_to_text": "image → sentences",
    "text_to_image": "sentence → images",
    "concept_loss": "loss of the concepts",
    "distinct_captions": "share of distinct captions",
    "median_rank": "median rank",
    "mean_rank": "mean rank",
    "terms": "unweighted term",
    "train": "Training",
    "val": "Validation",
    "word_probability": "mean probability of a word",
}
# The errors of the instance loss, with the names of its terms.
ERRORS = {
    f"train/terms/{name}_error": f"Training top-1 class error of {kind}, in percent"
    for name, kind in (("image_classes", "images"), ("text_classes", "captions"))
}

Scale = Callable[[float], float]


@dataclass(frozen=True)
class Tick:
    """A labeled position on an axis or along a line."""

    at: float
    label: str


@dataclass(frozen=True)
class Dot:
    """A highlighted point of a line, with a tooltip."""

    x: float
    y: float
    tooltip: str


@dataclass(frozen=True)
class Bar:
    """A bar of a histogram; `chance` is the position of the height that is reached by chance."""

    x: float
    y: float
    width: float
    chance: float
    label: str
    tooltip: str


@dataclass(frozen=True)
class Level:
    """A horizontal line that a curve is compared with: `chance` or `baseline`."""

    at: float
    kind: str
    label: str
    label_at: float


@dataclass(frozen=True)
class Chart:
    """Everything the template needs to draw one chart; screen readers read `summary` instead."""

    title: str
    summary: str
    x_label: str
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    line: str = ""
    second: str = ""  # the other experiment
    chance: str = ""
    dots: Sequence[Dot] = ()
    bars: Sequence[Bar] = ()
    levels: Sequence[Level] = ()
    phases: Sequence[Tick] = ()
    best: Tick | None = None
    best_label_at: float = 0


def recall_curve(direction: Direction) -> Chart:
    """Draw recall@K for every K from 1 to the size of the pool, compared with chance."""
    listed = {k: recall for k, recall in direction.recalls.items() if k <= direction.pool}
    summary = "; ".join(f"recall at {k}: {recall:.1f} %" for k, recall in listed.items())
    return _recall_chart(direction, [[direction.ranks]], summary, listed)


def overlaid_recall(direction: Direction, a: Sequence[np.ndarray], b: Sequence[np.ndarray]) -> Chart:
    """Draw recall@K of two experiments over each other, given by the ranks of their seeds, (queries,)."""
    parts = []
    for k in (1, 5, 10):
        if k <= direction.pool:
            recall_a, recall_b = (mean_recall(side, direction.folds, k) for side in (a, b))
            parts.append(f"recall at {k}: A {recall_a:.1f} %, B {recall_b:.1f} %")
    return _recall_chart(direction, [a, b], "; ".join(parts))


def rank_histogram(direction: Direction) -> Chart:
    """Draw how many queries have their first true item at each rank, compared with chance."""
    pool, queries = direction.pool, len(direction.ranks)
    edges = _round_edges(pool, (1, 2, 5))
    if len(edges) > MAX_BARS:
        edges = _round_edges(pool, (1, 5))
    within = np.array([0] + [int((direction.ranks <= edge).sum()) for edge in edges])
    by_chance = np.array([0.0] + [chance_recall(direction, edge) for edge in edges])
    counts, chances = np.diff(within), np.diff(by_chance) / 100 * queries
    steps = axis_steps(0, max(counts.max(), chances.max()))
    y, slot = linear(0, steps[-1], BOTTOM, TOP), (RIGHT - LEFT) / len(edges)
    ranges = _ranges(edges)
    return Chart(
        title="Queries at each rank",
        summary="; ".join(f"rank {span}: {count}" for span, count in zip(ranges, counts, strict=True)),
        x_label="rank of the first true one",
        x_ticks=[
            Tick(
                round(LEFT + slot * (place + 0.5), 2),
                compact(edge) if "–" not in span else f"≤{compact(edge)}",
            )
            for place, (edge, span) in enumerate(zip(edges, ranges, strict=True))
        ],
        y_ticks=[Tick(y(step), compact(step)) for step in steps],
        bars=[
            Bar(
                x=round(LEFT + slot * place + 4, 2),
                y=y(count),
                width=round(slot - 8, 2),
                chance=y(chance),
                label=str(count) if count else "",
                tooltip=f"Rank {span}: {count} of {queries}, by chance {chance:.1f}",
            )
            for place, (span, count, chance) in enumerate(zip(ranges, counts, chances, strict=True))
        ],
    )


def learning_curves(history: History) -> list[Chart]:
    """Draw each metric of the training over its steps, with the phases and the best step marked."""
    return [_learning_curve(name, history) for name in history.curves]


def overlaid_curves(a: History, b: History, names: Iterable[str]) -> list[Chart]:
    """Draw metrics of two training runs over each other; a metric that neither has is left out."""
    charts = []
    for name in names:
        curves = [history.series.get(name, {}) for history in (a, b)]
        if any(curves):
            ends = [
                f"{side} {list(curve.values())[-1]:.4g}"
                for side, curve in zip("AB", curves, strict=True)
                if curve
            ]
            charts.append(_curve_chart(name, a, curves, f"at the end: {', '.join(ends)}")[0])
    return charts


def linear(low: float, high: float, start: float, end: float) -> Scale:
    """Return the linear map from [low, high] to [start, end]; a range of one value maps to the middle."""
    if high == low:
        return lambda value: (start + end) / 2
    return lambda value: round(start + (value - low) / (high - low) * (end - start), 2)


def logarithmic(low: float, high: float, start: float, end: float) -> Scale:
    """Return the logarithmic map from [low, high] to [start, end]."""
    scale = linear(math.log(low), math.log(high), start, end)
    return lambda value: scale(math.log(value))


def axis_steps(low: float, high: float, integers: bool = False) -> list[float]:
    """Return up to seven evenly spaced round numbers that cover [low, high], or `integers` within it.

    Example:
        >>> axis_steps(3, 97)
        [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]
        >>> axis_steps(0, 3, integers=True)
        [0.0, 1.0, 2.0, 3.0]
    """
    rough = (high - low) / 5 or 1
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    if integers:
        step = max(1, round(step))
        first, last = math.ceil(low / step), math.floor(high / step)
    else:
        first, last = math.floor(low / step), math.ceil(high / step)
    return [float(f"{index * step:.12g}") for index in range(first, last + 1)]


def svg_path(points: Mapping[float, float] | Mapping[int, float], x: Scale, y: Scale) -> str:
    """Return the SVG path through `points`, in their order."""
    return "M" + " L".join(f"{x(key):g} {y(value):g}" for key, value in points.items())


def compact(number: float) -> str:
    """Format a number as an axis label.

    Example:
        >>> [compact(number) for number in (0.05, 20, 1500, 25000)]
        ['0.05', '20', '1.5k', '25k']
    """
    return f"{number / 1000:.3g}k" if 1000 <= number < 1_000_000 else f"{number:g}"


def metric_title(name: str) -> str:
    """Return the chart title of a logged metric.

    Example:
        >>> metric_title("val/text_to_image/R@10")
        'Validation R@10, sentence → images'
    """
    if name in ERRORS:
        return ERRORS[name]
    first, *middle, last = [METRIC_LABELS.get(part, part) for part in name.split("/")]
    return ", ".join([f"{first} {last}", *middle])


def _recall_chart(
    direction: Direction,
    sides: Sequence[Sequence[np.ndarray]],
    summary: str,
    listed: Mapping[int, float] | None = None,
) -> Chart:
    """Draw the recalls of one or two experiments, given by the ranks of their seeds; `listed` are dots."""
    pool = direction.pool
    ks = sorted({*range(1, min(pool, 20) + 1), *np.geomspace(1, pool, 60).astype(int).tolist()})
    x, y = logarithmic(1, max(pool, 2), LEFT, RIGHT), linear(0, 100, BOTTOM, TOP)
    lines = [svg_path({k: mean_recall(side, direction.folds, k) for k in ks}, x, y) for side in sides]
    return Chart(
        title="Recall within the first K",
        summary=summary,
        x_label="K, the length of the list",
        x_ticks=[Tick(x(k), compact(k)) for k in _round_edges(pool, (1, 5))],
        y_ticks=[Tick(y(percent), f"{percent} %") for percent in (0, 25, 50, 75, 100)],
        line=lines[0],
        second=lines[1] if len(lines) > 1 else "",
        chance=svg_path({k: chance_recall(direction, k) for k in ks}, x, y),
        dots=[Dot(x(k), y(recall), f"R@{k}: {recall:.1f} %") for k, recall in (listed or {}).items()],
    )


def _round_edges(pool: int, factors: tuple[int, ...]) -> list[int]:
    edges = [factor * 10**power for power in range(len(str(pool))) for factor in factors]
    return [edge for edge in edges if edge <= pool / 2] + [pool]


def _ranges(edges: list[int]) -> list[str]:
    starts = [1] + [edge + 1 for edge in edges[:-1]]
    return [str(end) if start == end else f"{start}–{end}" for start, end in zip(starts, edges, strict=True)]


def _learning_curve(name: str, history: History) -> Chart:
    values, unit, best = history.curves[name], history.unit, history.best
    steps = list(values)
    summarized = [step for step in steps if step in (steps[0], best, steps[-1])]
    levels = {
        kind: own[name.removeprefix("val/")]
        for kind, own in history.levels.items()
        if name.startswith("val/") and name.removeprefix("val/") in own
    }
    texts = [f"{unit} {step}: {values[step]:.4g}" for step in summarized]
    texts += [f"{kind}: {value:.4g}" for kind, value in levels.items()]
    chart, x, y = _curve_chart(name, history, [values], "; ".join(texts), levels.values())
    marked = {best} if name == history.main else set(steps) if len(steps) == 1 else set()
    return replace(
        chart,
        dots=[
            Dot(x(step), y(values[step]), f"{unit.capitalize()} {step}: {values[step]:.4g}")
            for step in steps
            if step in marked
        ],
        levels=[
            Level(
                y(value), kind, f"{kind} {value:.4g}", _level_label_height(y(value), map(y, levels.values()))
            )
            for kind, value in levels.items()
        ],
        phases=_phases(history, x),
        best=Tick(x(best), f"best: {unit} {best}") if best in values else None,
        best_label_at=_best_label_height(y(values[best])) if best in values else 0,
    )


def _curve_chart(
    name: str, history: History, curves: Sequence[Series], summary: str, levels: Iterable[float] = ()
) -> tuple[Chart, Scale, Scale]:
    """Draw a metric of one or two training runs; return also the scales of both axes."""
    values = [value for curve in curves for value in curve.values()] + list(levels)
    steps = sorted({step for curve in curves for step in curve})
    heights = axis_steps(min(values) if name == history.main else min(0.0, *values), max(values))
    x, y = linear(steps[0], steps[-1], LEFT, RIGHT), linear(heights[0], heights[-1], BOTTOM, TOP)
    lines = [svg_path(curve, x, y) if curve else "" for curve in curves]
    chart = Chart(
        title=metric_title(name) + (f" per {history.item}" if name == LOSS else ""),
        summary=summary,
        x_label=history.unit,
        x_ticks=[Tick(x(step), compact(step)) for step in axis_steps(steps[0], steps[-1], integers=True)],
        y_ticks=[Tick(y(height), compact(height)) for height in heights],
        line=lines[0],
        second=lines[1] if len(lines) > 1 else "",
    )
    return chart, x, y


def _best_label_height(curve_height: float) -> float:
    """Return a height for the label at the end of the plot that is farther from the curve."""
    return TOP + 14 if curve_height > (TOP + BOTTOM) / 2 else BOTTOM - 8


def _level_label_height(height: float, levels: Iterable[float]) -> float:
    """Return a height for the label of a level: above it, unless another level is there."""
    return height + 14 if any(0 < height - other < LEVEL_LABEL for other in levels) else height - 5


def _phases(history: History, x: Scale) -> list[Tick]:
    starts = {phase: x(first) for phase, (first, _) in history.phase_spans.items()}
    if len(starts) < 2:
        return []
    widths = [after - at for at, after in pairwise([*starts.values(), RIGHT])]
    return [
        Tick(at, f"phase {phase}" if width >= PHASE_LABEL_WIDTH else str(phase))
        for (phase, at), width in zip(starts.items(), widths, strict=True)
    ]
