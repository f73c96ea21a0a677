"""The page of `fne compare` in a real browser: everything is visible, nothing is requested or executed."""

import pytest

from fne.report.compare_page import compare_runs, render
from tests.support.comparison import write_project
from tests.support.hostile import CAPTIONS

SENTENCES = [
    (f"a {color} {thing}", f"the {thing}") for color in ("red", "blue") for thing in ("dog", "cat", "hen")
]


def write_page(folder, **choices):
    found = compare_runs(write_project(folder, **choices), "a", "b", moved=20, pictures=True)
    page = folder / "compare.html"
    page.write_text(render(found), encoding="utf-8")
    return page, found


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    return write_page(tmp_path_factory.mktemp("compare"), sentences=SENTENCES)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 375])
def test_the_page_loads_from_disk_without_requests_or_errors(open_page, compared, width, scheme):
    found = open_page(compared[0], width=width, color_scheme=scheme)
    assert found.foreign_requests == []
    assert found.errors == []
    # Only tables scroll sideways, in their own frames.
    assert found.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_every_query_that_moved_is_visible_with_both_models_answers(open_page, compared):
    page, found = open_page(compared[0]).page, compared[1]
    moved = sum(len(moves.better_in_a) + len(moves.better_in_b) for moves in found.moves)
    assert moved > 0
    articles = page.locator("article:visible")
    assert articles.count() == moved
    assert page.locator("article .side:visible").count() == 2 * moved
    assert page.locator("img").count() > 0
    assert page.evaluate("[...document.images].every((image) => image.complete && image.naturalWidth > 0)")


def test_both_lines_are_drawn_over_each_other_in_different_colors(open_page, compared):
    page = open_page(compared[0]).page
    charts = page.locator("svg")
    assert charts.count() == 4
    for chart in charts.all():
        colors = chart.locator("path.line").evaluate_all(
            "(paths) => paths.map((path) => getComputedStyle(path).stroke)"
        )
        assert len(set(colors)) == 2


def test_links_lead_to_the_sections(open_page, compared):
    page = open_page(compared[0]).page
    for link in page.locator("nav a").all():
        assert page.locator(link.get_attribute("href")).count() == 1


def test_hostile_captions_do_nothing(open_page, tmp_path):
    groups = [tuple(CAPTIONS[start : start + 5]) for start in range(0, 100, 5)]
    visit = open_page(write_page(tmp_path, sentences=groups)[0])
    assert visit.dialogs == []
    assert visit.errors == []
    assert visit.foreign_requests == []
