"""The page about captions in a real browser, with captions that would like to run."""

import json

import pytest

from tests.report.test_caption_page import page_of
from tests.support.hostile import CAPTIONS


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Write a page whose human captions, written captions and concepts are all hostile."""
    groups = [CAPTIONS[start : start + 10] for start in range(0, len(CAPTIONS), 10)]
    people = [group[:5] for group in groups]
    written = [group[-1] for group in groups]
    text, shown = page_of(people, written, examples=len(groups), concept=CAPTIONS[7])
    assert len(shown) == len(groups)
    path = tmp_path_factory.mktemp("page") / "captions.html"
    path.write_text(text, encoding="utf-8")
    return path


def test_hostile_captions_are_shown_and_never_run(open_page, page):
    found = open_page(page)
    found.page.wait_for_timeout(500)
    assert found.page.evaluate("window.ran") is None
    assert (found.dialogs, found.errors, found.foreign_requests) == ([], [], [])
    shown = found.page.locator("article.example").count()
    assert shown == len(range(0, len(CAPTIONS), 10))
    scripts = found.page.evaluate("[...document.scripts].map(each => each.textContent.length)")
    assert len(scripts) == 1


def test_examples_can_be_filtered_and_searched(open_page, page):
    found = open_page(page)
    found.page.get_by_label("Worst").check()
    assert found.page.locator("article.example.far:visible").count() > 0
    assert found.page.locator("article.example.hit:visible").count() == 0
    found.page.get_by_label("All ").check()
    found.page.locator("#search-examples").fill("13.jpg")
    assert found.page.locator("article.example:visible .id").all_inner_texts() == ["13.jpg"]


@pytest.mark.parametrize("width", [320, 1280])
def test_the_page_is_no_wider_than_the_window(open_page, tmp_path, width):
    people = [["a dog runs", "the dog"], ["two men play", "men"], ["a cat sits", "cats"]]
    path = tmp_path / "captions.html"
    path.write_text(page_of(people, ["a dog runs fast", "two men", "a cat"])[0], encoding="utf-8")
    found = open_page(path, width=width)
    overflow = found.page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    assert overflow <= 0, json.dumps(overflow)
