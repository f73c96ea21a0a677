import csv
from dataclasses import replace
from html.parser import HTMLParser

from fne.experiments.grids import FORMATS, Grid

GRID = Grid(
    "Table <1>", ["model", "R@1"], [["a | b", "5.0"], ["<script>", "12.0"]], legend="percent", notes=["first"]
)


def test_text_columns_are_aligned():
    assert FORMATS["text"]([GRID]).splitlines() == [
        "Table <1>", "percent", "model      R@1", "a | b      5.0", "<script>  12.0", "[1] first",
    ]  # fmt: skip


def test_markdown_escapes_vertical_bars():
    assert FORMATS["markdown"]([GRID]).splitlines()[2:6] == [
        "| model | R@1 |", "| --- | ---: |", r"| a \| b | 5.0 |", "| <script> | 12.0 |",
    ]  # fmt: skip


def test_bold_and_underlined_cells_are_marked_in_all_formats_but_csv():
    grid = replace(GRID, bold=frozenset({(0, 1)}), underlined=frozenset({(0, 1), (1, 1)}))
    assert [line[-6:] for line in FORMATS["text"]([grid]).splitlines()[3:5]] == ["  *_5.0"[-6:], " _12.0"]
    assert "| **<u>5.0</u>** |" in FORMATS["markdown"]([grid])
    assert "<td><b><u>5.0</u></b></td>" in FORMATS["html"]([grid])
    assert "<td><u>12.0</u></td>" in FORMATS["html"]([grid])
    assert FORMATS["csv"]([grid]) == FORMATS["csv"]([GRID])


def test_csv_has_one_header_and_the_rows_of_all_tables():
    lines = list(csv.reader(FORMATS["csv"]([GRID, GRID]).splitlines()))
    assert lines == [GRID.columns, *GRID.rows, *GRID.rows]


def test_html_has_no_scripts_and_loads_nothing():
    page = FORMATS["html"]([GRID])
    found: list[str] = []

    class Tags(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list) -> None:
            found.append(tag)
            assert not {"src", "href"} & {name for name, _ in attrs}

    Tags().feed(page)
    assert "script" not in found
    assert found.count("tr") == 3
    assert "&lt;script&gt;" in page


def test_no_cell_of_a_csv_file_is_a_formula():
    rows = [["=cmd|' /C calc'!A0", "-1.5"], ["\t@SUM(1)", "+1.0 to -2.0"]]
    lines = list(csv.reader(FORMATS["csv"]([Grid("t", ["a", "b"], rows)]).splitlines()))
    assert lines[1:] == [["'=cmd|' /C calc'!A0", "-1.5"], ["'\t@SUM(1)", "+1.0 to -2.0"]]
