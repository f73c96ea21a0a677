"""Tables as text: each of the `FORMATS` writes a list of grids for the terminal, as Markdown, CSV or HTML."""

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from html import escape

from fne.core.files import plain_cell
from fne.core.terminal import aligned

GENERATOR = '<meta name="generator" content="fne table">'


Cells = frozenset[tuple[int, int]]


@dataclass(frozen=True)
class Grid:
    """A titled table of text cells."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    text_columns: int = 1  # aligned to the left; the others hold numbers, aligned to the right
    legend: str = ""
    notes: list[str] = field(default_factory=list)  # numbered from 1
    bold: Cells = frozenset()  # the row and the column of each cell, counted from 0
    underlined: Cells = frozenset()


class Footnotes:
    """Footnotes, numbered in the order of their first use."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def marks(self, notes: Sequence[str]) -> str:
        """Return the footnote marks of notes, such as "[1][3]"."""
        self.texts += [note for note in notes if note not in self.texts]
        return "".join(f"[{self.texts.index(note) + 1}]" for note in notes)


def numbered(notes: Sequence[str]) -> list[str]:
    """Return the texts of footnotes with their marks."""
    return [f"[{number}] {note}" for number, note in enumerate(notes, start=1)]


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


def _drawn(grid: Grid, bold: tuple[str, str], underlined: tuple[str, str]) -> list[list[str]]:
    """Return the rows with marks around the cells that are bold or underlined."""

    def cell(value: str, place: tuple[int, int]) -> str:
        for cells, (before, after) in ((grid.underlined, underlined), (grid.bold, bold)):
            value = f"{before}{value}{after}" if place in cells else value
        return value

    return [
        [cell(value, (number, column)) for column, value in enumerate(row)]
        for number, row in enumerate(grid.rows)
    ]


def _text(grid: Grid) -> list[str]:
    rows = _drawn(grid, ("*", ""), ("_", ""))
    lines = aligned([grid.columns, *rows], grid.text_columns)
    return [grid.title, *filter(None, [grid.legend]), *lines, *numbered(grid.notes)]


def _markdown(grid: Grid) -> list[str]:
    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"

    marks = ["---" if position < grid.text_columns else "---:" for position in range(len(grid.columns))]
    rows = _drawn(grid, ("**", "**"), ("<u>", "</u>"))
    notes = [line for note in [grid.legend, *numbered(grid.notes)] if note for line in ("", note)]
    return [f"**{grid.title}**", "", line(grid.columns), line(marks), *map(line, rows), *notes]


def _html(grid: Grid) -> list[str]:
    def line(cells: Sequence[str], tag: str) -> str:
        cells_html = [
            f"<{tag}{' class=name' if position < grid.text_columns else ''}>{cell}</{tag}>"
            for position, cell in enumerate(cells)
        ]
        return f"<tr>{''.join(cells_html)}</tr>"

    escaped = replace(grid, rows=[[escape(cell) for cell in row] for row in grid.rows])
    rows = _drawn(escaped, ("<b>", "</b>"), ("<u>", "</u>"))
    body = [line([*map(escape, grid.columns)], "th"), *(line(row, "td") for row in rows)]
    notes = [f"<p>{escape(note)}</p>" for note in [grid.legend, *numbered(grid.notes)] if note]
    return [f"<h2>{escape(grid.title)}</h2>", "<div><table>", *body, "</table></div>", *notes]


FORMATS: dict[str, Callable[[Sequence[Grid]], str]] = {
    "text": text,
    "markdown": markdown,
    "csv": comma_separated,
    "html": html,
}
