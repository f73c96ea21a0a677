"""The page of a study, and its figure: the sum of recalls against the bytes of an image.

The figure has a panel for each `study.panel` and a mark for each `study.series`. A finished cell is a point.
A line goes through the points of a series that the inner validation prefers: those with a better validation
than every cell of the series that is not larger. So no point is on a line because of its test result. These
points are drawn with their 95 % intervals, and the others are faint. Cells that a hypothesis names have a
dark outline. Cells with less than two thirds of the best sum of recalls are left out and counted, so that the
differences between the others can be seen.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from fne.evaluation.intervals import LEVEL
from fne.experiments.study_results import CellResult, StudyResults, grids
from fne.report.charts import Scale, Tick, axis_steps, compact, linear, logarithmic, svg_path
from fne.report.page import environment

GENERATOR = '<meta name="generator" content="fne study">'
FIGURE = "<!-- fne study -->"
LEAST = 2 / 3  # cells below this fraction of the best sum of recalls are not drawn
WIDTH, LEFT, GAP, TOP, PANEL_HEIGHT = 960, 56, 18, 40, 330
LEGEND_LINE, LEGEND_COLUMN = 20, 170
# Colors that people who confuse red and green tell apart, and a shape for print; repeated after the last.
COLORS = ("#2f5fd0", "#b4501e", "#14743f", "#8a3ea8", "#50555f", "#c29200", "#00859b", "#b0236b")
# Paths around the origin.
SHAPES = (
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0Z",
    "M-3.5 -3.5H3.5V3.5H-3.5Z",
    "M0 -4.6L4.4 3.4H-4.4Z",
    "M0 -4.8L4.4 0L0 4.8L-4.4 0Z",
    "M0 4.6L4.4 -3.4H-4.4Z",
    "M-4 -1.4H-1.4V-4H1.4V-1.4H4V1.4H1.4V4H-1.4V1.4H-4Z",
    "M-4.2 -2.4L-2.4 -4.2L0 -1.8L2.4 -4.2L4.2 -2.4L1.8 0L4.2 2.4L2.4 4.2L0 1.8L-2.4 4.2L-4.2 2.4L-1.8 0Z",
    "M-2 -4.4H2L4.6 0L2 4.4H-2L-4.6 0Z",
)


@dataclass(frozen=True)
class Mark:
    """How a series is drawn."""

    color: str
    shape: str


@dataclass(frozen=True)
class Point:
    """A cell in the figure; `low` and `high` are the ends of its interval, if it is preferred."""

    x: float
    y: float
    low: float
    high: float
    mark: Mark
    tooltip: str
    preferred: bool
    named: bool  # by a hypothesis


@dataclass(frozen=True)
class Panel:
    """A part of the figure, with the lines through what the validation prefers."""

    title: str
    left: float
    right: float
    x_ticks: list[Tick]
    points: list[Point]
    lines: list[tuple[str, str]]  # color, path


def size_figure(found: StudyResults) -> str:
    """Return the figure as an SVG file; equal results give equal text."""
    least = LEAST * max(each.rsum for each in found.cells)
    shown = [each for each in found.cells if each.rsum >= least]
    below = len(found.cells) - len(shown)
    left_out = f" Not shown: {below} of {len(found.cells)} cells, below {least:.0f}." if below else ""
    marks = {
        name: Mark(COLORS[number % len(COLORS)], SHAPES[number % len(SHAPES)])
        for number, name in enumerate(dict.fromkeys(each.cell.series for each in shown))
    }
    names = list(dict.fromkeys(each.cell.panel for each in shown))
    bottom = TOP + PANEL_HEIGHT
    heights = axis_steps(min(each.interval[0] for each in shown), max(each.interval[1] for each in shown))
    y = linear(heights[0], heights[-1], bottom, TOP)
    # All panels have the same axes.
    listed = [each.size for each in shown]
    sizes = min(listed) / 1.3, max(listed) * 1.3
    width = (WIDTH - LEFT - GAP * len(names)) / len(names)
    named = {name for each in found.study.file.hypotheses for name in (each.a, each.b)}
    panels = [
        _panel(
            name,
            [each for each in shown if each.cell.panel == name],
            LEFT + number * (width + GAP),
            width,
            sizes,
            y,
            marks,
            named,
        )
        for number, name in enumerate(names)
    ]
    columns = max(1, (WIDTH - LEFT) // LEGEND_COLUMN)
    legend = [
        (LEFT + number % columns * LEGEND_COLUMN, bottom + 66 + number // columns * LEGEND_LINE, name, mark)
        for number, (name, mark) in enumerate(marks.items())
    ]
    return (
        environment()
        .get_template("study.svg")
        .render(
            head=Markup(FIGURE),  # noqa: S704 - a constant
            title=found.study.file.title,
            summary=_summary(found.cells),
            width=WIDTH,
            height=legend[-1][1] + 56,
            bottom=bottom,
            top=TOP,
            y_ticks=[Tick(y(height), compact(height)) for height in heights],
            panels=panels,
            legend=legend,
            notes=[
                "Points: cells. Lines: cells with a better inner validation than all of their series with as "
                "many bytes or fewer,",
                f"with {LEVEL:.0%} intervals over {found.images:,} images, not corrected. Dark outlines: "
                f"cells that a hypothesis names.{left_out}",
            ],
        )
    )


def render(found: StudyResults) -> str:
    """Return the results of a study as one HTML page that opens from disk and loads nothing."""
    figure = Markup(size_figure(found))  # noqa: S704 - the template of the figure escapes every value
    return environment().get_template("study.html").render(found=found, figure=figure, grids=grids(found))


def is_page(head: bytes) -> bool:
    """Tell from the beginning of a file whether it is a page of `fne study`."""
    return GENERATOR.encode() in head


def is_figure(head: bytes) -> bool:
    """Tell from the beginning of a file whether it is a figure of `fne study`."""
    return FIGURE.encode() in head


def preferred(cells: Sequence[CellResult]) -> list[CellResult]:
    """Return the cells with a better validation than all that are smaller or as large, by size."""
    found: list[CellResult] = []
    for each in sorted(cells, key=lambda each: (each.size, -each.validation)):
        if not found or each.validation > found[-1].validation:
            found.append(each)
    return found


def _panel(
    title: str,
    cells: Sequence[CellResult],
    left: float,
    width: float,
    sizes: tuple[float, float],
    y: Scale,
    marks: dict[str, Mark],
    named: set[str],
) -> Panel:
    low, high = sizes
    x = logarithmic(low, high, left + 8, left + width - 8)
    ticks = [2**power for power in range(24) if low <= 2**power <= high]
    shown = ticks[:: 1 + len(ticks) // max(2, int(width // 52))]
    lines, chosen = [], []
    for series in dict.fromkeys(each.cell.series for each in cells):
        best = preferred([each for each in cells if each.cell.series == series])
        chosen += best
        if len(best) > 1:
            path = svg_path({each.size: each.rsum for each in best}, x, y)
            lines.append((marks[series].color, path))
    points = [
        Point(
            x(each.size),
            y(each.rsum),
            y(each.interval[0]),
            y(each.interval[1]),
            marks[each.cell.series],
            f"{each.cell.name}: {each.rsum:.1f} ({each.interval[0]:.1f} to {each.interval[1]:.1f}), "
            f"{each.size} bytes",
            each in chosen,
            each.cell.name in named,
        )
        # The preferred ones above the others, and those of hypotheses above all.
        for each in sorted(cells, key=lambda each: (each.cell.name in named, each in chosen))
    ]
    return Panel(title, left, left + width, [Tick(x(each), _bytes(each)) for each in shown], points, lines)


def _bytes(size: int) -> str:
    """Format a power of two as an axis label.

    Example:
        >>> _bytes(512), _bytes(8192)
        ('512', '8 Ki')
    """
    return str(size) if size < 1024 else f"{size // 1024} Ki"


def _summary(cells: Sequence[CellResult]) -> str:
    best = max(cells, key=lambda each: each.validation)
    return (
        f"{len(cells)} cells; the validation prefers {best.cell.name}: {best.rsum:.1f} with {best.size} bytes"
    )
