"""The printed tables of the papers, and tables as text.

Tables of the FNE paper are addressed by their number (`2`), those of other papers by the paper and the
number (`two-branch/1`), or the data set of a table without one (`dual-path/coco`). `rows` and `starts` return
them as the papers print them.

A `Grid` is a table whose cells are text; each of the `FORMATS` writes a list of grids: for the
terminal, as Markdown, as CSV or as a page for the browser.
"""

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from html import escape
from typing import Any

from fne.core.errors import InputError
from fne.core.files import plain_cell
from fne.experiments.presets import FNE, FOLDER, description_papers, load, papers, split_address

GENERATOR = '<meta name="generator" content="fne table">'
STARTS = "5"  # the table of how many trainings started
NOT_RESULTS = {(FNE, "1")}  # its Table 1 has the settings of the methods
COLUMNS_PER_DIRECTION = 4  # the last one is the median rank, which some papers do not print
RECALL_POSITIONS = (0, 1, 2, 4, 5, 6)  # in `Numbers`

Numbers = tuple[float | None, ...]  # R@1, R@5, R@10 and median rank, for annotation and then for retrieval


@dataclass(frozen=True)
class PrintedRow:
    """A row of a table of results; None where the paper prints nothing."""

    model: str
    method: str  # the address of its preset, if there is one
    numbers: Numbers
    notes: list[str]
    is_paper_method: bool  # with a preset; neither quoted from elsewhere, nor one that nobody can fill


@dataclass(frozen=True)
class PrintedStarts:
    """A row of Table 5: how many runs started to learn."""

    model: str
    learning_rate: float
    margin: float
    absolute: bool
    started: int
    runs: int
    notes: list[str]


@dataclass(frozen=True)
class Grid:
    """A titled table of text cells.

    The first `text_columns` columns are aligned to the left, the others, which hold numbers, to the right.
    """

    title: str
    columns: list[str]
    rows: list[list[str]]
    text_columns: int = 1
    legend: str = ""
    notes: list[str] = field(default_factory=list)  # numbered from 1


@cache
def addresses() -> list[str]:
    """Return the addresses of all tables that hold results of retrieval, in the order of the papers."""
    found = []
    for paper in papers():
        numbers = sorted(path.stem.removeprefix("table") for path in (FOLDER / paper).glob("table*.yaml"))
        prefix = "" if paper == FNE else f"{paper}/"
        found += [f"{prefix}{number}" for number in numbers if (paper, number) not in NOT_RESULTS]
    return found


@cache
def description_tables() -> list[str]:
    """Return the addresses of all tables about descriptions of images."""
    return [
        f"{paper}/{path.stem.removeprefix('table')}"
        for paper in description_papers()
        for path in sorted((FOLDER / paper).glob("table*.yaml"))
    ]


def check_address(address: str) -> None:
    """Refuse the address of a table that does not exist.

    Raises:
        InputError: with the closest one.
    """
    known = [*addresses(), *description_tables()]
    if address not in known:
        [close] = get_close_matches(address, known, n=1, cutoff=0)
        raise InputError(f"there is no table '{address}' (did you mean '{close}'?); see `fne table --list`")


def load_table(address: str) -> dict[str, Any]:
    """Return the file of a table."""
    paper, number = split_address(address)
    return load(f"table{number}", paper)


def table_title(address: str) -> str:
    """Return the title of a table, with its paper if that is not the FNE paper."""
    paper, number = split_address(address)
    title = f"Table {number}: {load_table(address)['title']}"
    return title if paper == FNE else f"{paper}, {title}"


def rows(address: str) -> list[PrintedRow]:
    """Return the rows of a table of results, in the order of the paper."""
    table, (paper, _) = load_table(address), split_address(address)
    texts = table["notes"] | table["errata"]
    return [
        PrintedRow(
            row["model"],
            f"{paper}/{row['preset']}" if "preset" in row else row["model"],
            (*_with_median(row["annotation"]), *_with_median(row["retrieval"])),
            [texts[note] for note in (*row.get("notes", []), *row.get("errata", []))],
            row["group"] == "paper" and row.get("fill", True),
        )
        for row in table["rows"]
    ]


def starts() -> list[PrintedStarts]:
    """Return the rows of Table 5."""
    table = load_table(STARTS)
    return [
        PrintedStarts(
            row["model"],
            row["learning_rate"],
            row["margin"],
            row["absolute"],
            row["started"],
            row["runs"],
            [table["errata"][note] for note in row.get("errata", [])],
        )
        for row in table["rows"]
    ]


def sum_of_recalls(numbers: Numbers) -> float | None:
    """Return the sum of the six recalls, or None if one is missing."""
    recalls = [numbers[position] for position in RECALL_POSITIONS]
    known = [recall for recall in recalls if recall is not None]
    return sum(known) if len(known) == len(recalls) else None


def text(grids: Sequence[Grid]) -> str:
    """Return tables as plain text with aligned columns."""
    return "\n\n".join("\n".join(_text(grid)) for grid in grids)


def markdown(grids: Sequence[Grid]) -> str:
    """Return tables in GitHub's Markdown."""
    return "\n\n".join("\n".join(_markdown(grid)) for grid in grids)


def comma_separated(grids: Sequence[Grid]) -> str:
    """Return the rows of all tables as CSV, without notes; equal headers are written once.

    Names of experiments may come from others, so no cell is a formula (`fne.core.files.plain_cell`).
    """
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    for number, grid in enumerate(grids):
        if number == 0 or grid.columns != grids[number - 1].columns:
            writer.writerow([plain_cell(cell) for cell in grid.columns])
        writer.writerows([plain_cell(cell) for cell in row] for row in grid.rows)
    return buffer.getvalue().rstrip("\n")


def html(grids: Sequence[Grid]) -> str:
    """Return an HTML page that needs no other file."""
    tables = "\n".join(line for grid in grids for line in _html(grid))
    title = escape(grids[0].title) if grids else ""
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
{GENERATOR}
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 15px/1.4 system-ui, sans-serif; margin: 2rem; }}
div {{ overflow-x: auto; }}
table {{ border-collapse: collapse; }}
td, th {{ padding: .15rem .6rem; text-align: right; border-bottom: 1px solid #8884; white-space: nowrap; }}
.name {{ text-align: left; }}
</style>
{tables}
</html>"""


def _with_median(printed: Sequence[float | None]) -> list[float | None]:
    return [*printed, *[None] * (COLUMNS_PER_DIRECTION - len(printed))]


def _text(grid: Grid) -> list[str]:
    widths = [max(map(len, cells)) for cells in zip(grid.columns, *grid.rows, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if position < grid.text_columns else cell.rjust(width)
            for position, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in [grid.columns, *grid.rows]
    ]
    return [grid.title, *filter(None, [grid.legend]), *lines, *_numbered(grid)]


def _markdown(grid: Grid) -> list[str]:
    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"

    marks = ["---" if position < grid.text_columns else "---:" for position in range(len(grid.columns))]
    notes = [line for note in [grid.legend, *_numbered(grid)] if note for line in ("", note)]
    return [f"**{grid.title}**", "", line(grid.columns), line(marks), *map(line, grid.rows), *notes]


def _html(grid: Grid) -> list[str]:
    def line(cells: Sequence[str], tag: str) -> str:
        cells_html = [
            f"<{tag}{' class=name' if position < grid.text_columns else ''}>{escape(cell)}</{tag}>"
            for position, cell in enumerate(cells)
        ]
        return f"<tr>{''.join(cells_html)}</tr>"

    body = [line(grid.columns, "th"), *(line(row, "td") for row in grid.rows)]
    notes = [f"<p>{escape(note)}</p>" for note in [grid.legend, *_numbered(grid)] if note]
    return [f"<h2>{escape(grid.title)}</h2>", "<div><table>", *body, "</table></div>", *notes]


def _numbered(grid: Grid) -> list[str]:
    return [f"[{number}] {note}" for number, note in enumerate(grid.notes, start=1)]


FORMATS: dict[str, Callable[[Sequence[Grid]], str]] = {
    "text": text,
    "markdown": markdown,
    "csv": comma_separated,
    "html": html,
}
