"""Tables of text, for the terminal, for documents, for spreadsheets and for the browser."""

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape


@dataclass(frozen=True)
class Grid:
    """A titled table; all cells are text. The first `names` columns are words, the others are numbers."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    names: int = 1
    legend: str = ""
    notes: list[str] = field(default_factory=list)  # numbered from 1


def text(grids: Sequence[Grid]) -> str:
    """Return tables with aligned columns."""
    return "\n\n".join("\n".join(_text(grid)) for grid in grids)


def markdown(grids: Sequence[Grid]) -> str:
    """Return tables in GitHub's Markdown."""
    return "\n\n".join("\n".join(_markdown(grid)) for grid in grids)


def comma_separated(grids: Sequence[Grid]) -> str:
    """Return the rows of all tables under one header; notes are left out."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    for number, grid in enumerate(grids):
        if number == 0 or grid.columns != grids[number - 1].columns:
            writer.writerow(grid.columns)
        writer.writerows(grid.rows)
    return buffer.getvalue().rstrip("\n")


def html(grids: Sequence[Grid]) -> str:
    """Return a page of its own, which needs nothing from elsewhere."""
    tables = "\n".join(line for grid in grids for line in _html(grid))
    title = escape(grids[0].title) if grids else ""
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
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


def _text(grid: Grid) -> list[str]:
    widths = [max(map(len, cells)) for cells in zip(grid.columns, *grid.rows, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if position < grid.names else cell.rjust(width)
            for position, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in [grid.columns, *grid.rows]
    ]
    return [grid.title, *filter(None, [grid.legend]), *lines, *_numbered(grid)]


def _markdown(grid: Grid) -> list[str]:
    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"

    marks = ["---" if position < grid.names else "---:" for position in range(len(grid.columns))]
    notes = [line for note in [grid.legend, *_numbered(grid)] if note for line in ("", note)]
    return [f"**{grid.title}**", "", line(grid.columns), line(marks), *map(line, grid.rows), *notes]


def _html(grid: Grid) -> list[str]:
    def line(cells: Sequence[str], tag: str) -> str:
        made = [
            f"<{tag}{' class=name' if position < grid.names else ''}>{escape(cell)}</{tag}>"
            for position, cell in enumerate(cells)
        ]
        return f"<tr>{''.join(made)}</tr>"

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
