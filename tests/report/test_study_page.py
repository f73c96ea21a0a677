import re
from xml.etree import ElementTree

import pytest

from fne.experiments.study_file import StudyCell, load_study
from fne.experiments.study_results import CellResult, StudyResults
from fne.report.study_page import is_figure, is_page, preferred, render, size_figure
from tests.support.studies import write_file


def cell(series: str, size: int, validation: float, rsum: float, panel: str = "Small") -> CellResult:
    name = f"{series} {size} {validation:g}"
    chosen = StudyCell("small", {"code": name}, {}, None, panel, series)
    return CellResult(chosen, rsum, (rsum - 5, rsum + 5), validation, 8, size, [rsum], 1, 1)


@pytest.fixture
def found(tmp_path):
    cells = [
        cell("ternary", 100, 10, 58),
        cell("ternary", 100, 20, 48),
        cell("ternary", 200, 30, 60),
        cell("<float16>", 400, 30, 70, panel="A & B"),
    ]
    return StudyResults(load_study(write_file(tmp_path / "s.yaml")), cells, [], 1.5, 48, 12)


def test_lines_go_through_what_the_validation_prefers_whatever_the_test_says(found):
    assert [each.rsum for each in preferred(found.cells)] == [48, 60]  # the last is no better than the third


def test_cells_far_below_the_best_are_counted_and_not_drawn(found):
    found.cells.append(cell("ternary", 50, 5, 10))
    svg = size_figure(found)
    assert "ternary 50 5" not in svg
    assert " names. Not shown: 1 of 5 cells, below 47.</text>" in svg


def test_the_figure_has_a_point_for_each_cell_and_a_line_for_each_series_with_two_sizes(found):
    svg = size_figure(found)
    root = ElementTree.fromstring(svg)
    titles = [each.text for each in root.iter("{http://www.w3.org/2000/svg}title")]
    assert len(titles) == 4
    assert titles[0] == "small/ternary 100 10: 58.0 (53.0 to 63.0), 100 bytes"
    assert svg.count('fill-opacity="0.25"') == 1  # that one: the validation prefers another of 100 bytes
    assert svg.count('stroke-opacity="0.4"') == 3
    paths = [each for each in root.iter("{http://www.w3.org/2000/svg}path") if each.get("fill") == "none"]
    assert len(paths) == 1
    texts = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"Small", "A & B", "ternary", "<float16>", "bytes per image"} <= set(texts)
    assert is_figure(svg.encode()[:4096])


def test_a_larger_sum_of_recalls_is_higher_and_more_bytes_are_further_right(found):
    places = re.findall(r"<g><title>.*?translate\(([0-9.]+) ([0-9.]+)\)", size_figure(found))
    points = [(float(x), float(y)) for x, y in places]
    assert points[0][1] < points[1][1]
    assert points[0][0] == points[1][0] < points[2][0]


def test_the_page_has_the_figure_and_loads_nothing(found):
    page = render(found)
    assert is_page(page.encode()[:4096])
    assert "default-src 'none'" in page
    assert "<svg" in page
    assert "<float16>" not in page
    assert 'src="http' not in page
