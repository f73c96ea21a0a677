"""The page about tags in a real browser: sorting, filtering, nothing requested, no data executed."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.browsers import visit
from tests.support.hostile import CAPTIONS as HOSTILE
from tests.support.projects import change_params
from tests.support.stages import invoke
from tests.support.tagging import scenes, write_project


def write_page(folder, monkeypatch, records):
    monkeypatch.chdir(folder)
    write_project(folder, records)
    change_params(folder, {"tags_page": {"examples": 12}})
    result = invoke("train_tagger", "write_tags", "score_tags", "tags_page")
    assert result.exit_code == 0, result.output
    return folder / "report/tags.html"


@pytest.fixture(scope="module")
def patch():
    with pytest.MonkeyPatch.context() as patched:
        yield patched


@pytest.fixture(scope="module")
def page_file(tmp_path_factory, patch):
    return write_page(tmp_path_factory.mktemp("tags"), patch, scenes(60))


@pytest.fixture(scope="module")
def hostile_file(tmp_path_factory, patch):
    tags = [text for text in HOSTILE if isinstance(text, str) and text.strip()][:40]
    records = [
        replace(record, tags=(*record.tags, tags[number % len(tags)].strip()))
        for number, record in enumerate(scenes(60))
    ]
    return write_page(tmp_path_factory.mktemp("hostile"), patch, records)


def column(page, number):
    cells = page.locator(f".sortable tbody tr > :nth-child({number})")
    return [cell.inner_text() for cell in cells.all()]


def test_the_table_of_tags_is_sorted_by_a_click(browser, page_file):
    page = visit(browser, page_file).page
    heading = page.get_by_role("button", name="F1", exact=True)
    heading.click()
    falling = [float(text) for text in column(page, 7)]
    assert falling == sorted(falling, reverse=True)
    assert len(falling) == 22
    heading.click()
    assert [float(text) for text in column(page, 7)] == falling[::-1]
    assert page.locator("th[aria-sort=ascending]").inner_text().startswith("F1")
    page.get_by_role("button", name="Tag", exact=True).click()
    assert column(page, 1) == sorted(column(page, 1))


def test_examples_are_filtered_and_searched(browser, page_file):
    page = visit(browser, page_file).page
    shown = page.locator(".example:visible")
    assert shown.count() == 12
    page.get_by_label("Search").fill("scene-")
    assert page.locator(".search output").inner_text() == "12 of 12 shown"
    page.get_by_label("Search").fill("no such tag anywhere")
    assert shown.count() == 0


@pytest.mark.parametrize("which", ["page_file", "hostile_file"])
def test_nothing_is_requested_or_executed(browser, which, request):
    seen = visit(browser, request.getfixturevalue(which))
    assert seen.foreign_requests == []
    assert seen.errors == []
    assert seen.dialogs == []
    assert seen.page.locator("h1").inner_text() == "What the tagger sees in images"


@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_is_wider_than_the_window_except_tables_that_scroll(browser, page_file, width):
    page = visit(browser, page_file, width=width).page
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_without_scripts_everything_is_shown(browser, page_file):
    page = visit(browser, page_file, java_script_enabled=False).page
    assert page.locator(".example").count() == 12
    assert len(column(page, 1)) == 22
    assert Path(page_file).stat().st_size < 2_000_000
