"""Pages that open from disk, in a real browser: they fit, are readable, request nothing and execute no data."""

from collections.abc import Callable
from contextlib import chdir
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fne.report.compare_page import Comparison, compare_runs, render
from stages.report import main
from tests.report.test_caption_page import page_of
from tests.support.comparison import write_project as write_runs
from tests.support.hostile import CAPTIONS
from tests.support.projects import change_params
from tests.support.report import FULL, write_history, write_run
from tests.support.stages import invoke
from tests.support.tagging import scenes, write_project

COLORS = ("red", "green", "blue", "gray", "pink")
SENTENCES = [
    tuple(f"a {size} {color} {thing}" for size in ("big", "small"))
    for color in COLORS
    for thing in ("dog", "cat", "bird", "fish")
]


def groups(size: int, captions: list[str] = CAPTIONS) -> list[tuple[str, ...]]:
    """Return hostile captions, some for each image."""
    return [tuple(captions[start : start + size]) for start in range(0, len(captions), size)]


def report(folder: Path, **choices: Any) -> Path:
    run = write_run(folder, **choices)
    write_history(folder, {"train/loss": [3, 2, 1, 1], "val/rsum": [1, 3, 2, 4], "train/phase": [1, 1, 2, 2]})
    result = CliRunner().invoke(main, run.arguments)
    assert result.exit_code == 0, result.output
    return folder / "index.html"


def captions(folder: Path, people: list[Any], written: list[str], concept: str = "dog") -> Path:
    path = folder / "captions.html"
    path.write_text(page_of(people, written, examples=len(people), concept=concept)[0], encoding="utf-8")
    return path


def compare(folder: Path, sentences: list[tuple[str, ...]]) -> Path:
    path = folder / "compare.html"
    path.write_text(render(compared(folder, sentences)), encoding="utf-8")
    return path


def compared(folder: Path, sentences: list[tuple[str, ...]]) -> Comparison:
    return compare_runs(write_runs(folder, sentences=sentences), "a", "b", moved=20, pictures=True)


def tags(folder: Path, more: list[str]) -> Path:
    records = [
        replace(record, tags=(*record.tags, *more[number % 40 : number % 40 + 1]))
        for number, record in enumerate(scenes(60))
    ]
    with chdir(folder):
        write_project(folder, records)
        change_params(folder, {"tags_page": {"examples": 12}})
        result = invoke("train_tagger", "write_tags", "score_tags", "tags_page")
    assert result.exit_code == 0, result.output
    return folder / "report/tags.html"


PEOPLE = [["a dog runs", "the dog"], ["two men play", "men"], ["a cat sits", "cats"]]
HOSTILE_TENS = groups(10)
MAKERS: dict[str, Callable[[Path], Path]] = {
    "report": lambda folder: report(folder, sentences=SENTENCES, examples=40, more=FULL),
    "captions": lambda folder: captions(folder, PEOPLE, ["a dog runs fast", "two men", "a cat"]),
    "compare": lambda folder: compare(folder, SENTENCES[:6]),
    "tags": lambda folder: tags(folder, []),
    "hostile report": lambda folder: report(folder, sentences=groups(5), examples=500, top=10),
    "hostile captions": lambda folder: captions(
        folder, [group[:5] for group in HOSTILE_TENS], [group[-1] for group in HOSTILE_TENS], CAPTIONS[7]
    ),
    "hostile compare": lambda folder: compare(folder, groups(5, CAPTIONS[:100])),
    "hostile tags": lambda folder: tags(folder, [text.strip() for text in CAPTIONS if text.strip()]),
}
PAGES = [name for name in MAKERS if not name.startswith("hostile")]
HOSTILE = [name for name in MAKERS if name.startswith("hostile")]


@pytest.fixture(scope="module")
def page_file(tmp_path_factory) -> Callable[[str], Path]:
    """Return the page of a name, which is made once."""
    made: dict[str, Path] = {}

    def page_file_(name: str) -> Path:
        if name not in made:
            made[name] = MAKERS[name](tmp_path_factory.mktemp(name.replace(" ", "-")))
        return made[name]

    return page_file_


@pytest.fixture
def open_named(open_page, page_file):
    """Return `open_named(name, **options)`, which opens the page of a name."""
    return lambda name, **options: open_page(page_file(name), **options)


def open_details(page):
    page.locator("details").evaluate_all("all => all.forEach(one => { one.open = true; })")


def shown(page, gallery):
    return page.locator(f".gallery:has(#{gallery}) .example:visible")


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_loads_from_disk_without_requests_or_errors_and_every_text_is_readable(
    open_named, page_file, name, scheme
):
    found = open_named(name, color_scheme=scheme)
    open_details(found.page)
    found.require_contrast(texts=200 if name == "report" else 50)
    assert found.foreign_requests == []
    assert [url for url in found.requests if url.startswith("file:")] == [page_file(name).as_uri()]
    assert found.errors == []


@pytest.mark.parametrize("name", MAKERS)
def test_nothing_is_wider_than_the_window(open_named, name):
    found = open_named(name)
    open_details(found.page)
    for width in (320, 375, 768, 1280):
        found.require_width(width)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_shown_and_executes_nothing(open_named, page_file, name):
    found = open_named(name)
    page = found.page
    open_details(page)
    page.locator("bdi").evaluate_all(
        "all => all.forEach(one => one.dispatchEvent(new MouseEvent('mouseover')))"
    )
    for text in (CAPTIONS[0], "") if page.get_by_label("Search").count() else ():
        page.get_by_label("Search").first.fill(text)
    page.wait_for_timeout(500)
    assert page.evaluate("window.ran") is None
    assert (found.dialogs, found.foreign_requests, found.errors) == ([], [], [])
    assert page.url == page_file(name).as_uri()
    assert page.locator("script").count() <= 1
    foreign = "iframe, object, embed, base, form, bdi :not(span.word, u.foreign), [onerror], [onload]"
    assert page.locator(foreign).count() == 0
    assert "<script>" in page.locator("body").inner_text()


def test_500_hostile_captions_are_examples_of_the_report(open_named):
    assert len(set(CAPTIONS)) == 500
    page = open_named("hostile report").page
    assert page.locator(".gallery:has(#sentences) .example").count() == 500
    titles = page.locator(".gallery:has(#sentences) h3 bdi")
    texts = titles.evaluate_all("all => all.map(one => one.textContent)")
    assert sum("<script>" in text for text in texts) > 50


def test_the_same_captions_are_executed_in_a_page_that_does_not_escape_them(open_page, tmp_path):
    """So that the tests above cannot pass because their captions are harmless."""
    path = tmp_path / "careless.html"
    path.write_text(f"<!DOCTYPE html><meta charset=utf-8><p>{CAPTIONS[0]}", encoding="utf-8")
    found = open_page(path)
    assert found.page.evaluate("window.ran") == 1
    assert found.dialogs == ["1"]


def test_the_two_color_schemes_differ(open_named):
    color = "getComputedStyle(document.body).backgroundColor"
    schemes = ("light", "dark")
    assert len({open_named("report", color_scheme=each).page.evaluate(color) for each in schemes}) == 2


def test_all_pictures_of_the_report_are_visible(open_named):
    page = open_named("report").page
    images = page.locator("img")
    assert images.count() > 20
    hidden = "all => all.filter(one => !(one.complete && one.naturalWidth && one.width))"
    assert images.evaluate_all(hidden) == []
    charts = page.locator("figure.chart > svg:visible")
    assert charts.count() >= 6
    assert charts.evaluate_all("all => Math.min(...all.map(one => one.getBoundingClientRect().width))") > 300


def test_the_search_shows_the_examples_that_contain_every_word(open_named):
    page = open_named("report").page
    everything = shown(page, "sentences").count()
    search = page.get_by_label("Search").nth(1)
    search.fill("  RED do")
    texts = shown(page, "sentences").locator("h3").all_inner_texts()
    assert 0 < len(texts) < everything
    assert all("red" in text and "do" in text for text in texts)
    status = page.locator(".gallery:has(#sentences) output")
    assert status.inner_text() == f"{len(texts)} of {everything} shown"
    for text, count, said in (("zebra", 0, f"None of {everything} shown"), ("", everything, "")):
        search.fill(text)
        assert (shown(page, "sentences").count(), status.inner_text()) == (count, said)


def test_search_and_outcome_filter_combine(open_named):
    page = open_named("report").page
    gallery = page.locator(".gallery:has(#images)")
    gallery.get_by_label("Rank 1").check()
    hits = shown(page, "images").count()
    assert 0 < hits < gallery.locator(".example").count()
    assert hits == gallery.locator(".example.hit").count()
    gallery.get_by_label("Search").fill("image-0")
    both = shown(page, "images")
    assert 0 < both.count() < hits
    assert both.count() == gallery.locator(".example.hit:visible").count()
    assert gallery.locator("output").inner_text().startswith(f"{both.count()} of ")


def test_the_search_works_by_keyboard_with_a_visible_focus(open_named):
    page = open_named("report").page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.innerText") == "Skip to the results"
    assert page.locator(":focus").bounding_box()["width"] > 50
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")  # on "Skip to the examples"
    assert page.evaluate("location.hash") == "#images"
    for _ in range(10):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.type") == "search":
            break
    assert page.evaluate("document.activeElement.id") == "search-images"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    before = shown(page, "images").count()
    page.keyboard.type("blue bird")
    assert 0 < shown(page, "images").count() < before
    page.keyboard.press("Escape")
    assert shown(page, "images").count() == before


def test_the_outcome_filter_works_by_keyboard(open_named):
    page = open_named("report").page
    page.locator("input[name=images]").first.focus()
    page.keyboard.press("ArrowRight")
    assert shown(page, "images").count() == page.locator(".gallery:has(#images) .example.hit").count()


def test_without_scripts_everything_is_shown_the_filter_works_and_the_search_box_is_hidden(open_named):
    page = open_named("report", java_script_enabled=False).page
    assert shown(page, "images").count() == page.locator(".gallery:has(#images) .example").count() > 0
    assert page.locator("input[type=search]:visible").count() == 0
    page.locator("input[name=images][value=hit]").check()
    assert shown(page, "images").count() == page.locator(".gallery:has(#images) .example.hit").count()


def test_written_captions_can_be_filtered_and_searched(open_named):
    page = open_named("hostile captions").page
    assert page.locator("article.example").count() == len(HOSTILE_TENS)
    page.get_by_label("Worst").check()
    assert page.locator("article.example.far:visible").count() > 0
    assert page.locator("article.example.hit:visible").count() == 0
    page.get_by_label("All ").check()
    page.locator("#search-examples").fill("13.jpg")
    assert page.locator("article.example:visible .id").all_inner_texts() == ["13.jpg"]


def test_every_query_that_moved_is_visible_with_both_models_answers(open_named, tmp_path):
    page = open_named("compare").page
    moves = compared(tmp_path, SENTENCES[:6]).moves
    moved = sum(len(each.better_in_a) + len(each.better_in_b) for each in moves)
    assert page.locator("article:visible").count() == moved > 0
    assert page.locator("article .side:visible").count() == 2 * moved
    assert page.locator("img").count() > 0
    assert page.evaluate("[...document.images].every((image) => image.complete && image.naturalWidth > 0)")
    for link in page.locator("nav a").all():
        assert page.locator(link.get_attribute("href")).count() == 1


def test_both_lines_are_drawn_over_each_other_in_different_colors(open_named):
    charts = open_named("compare").page.locator("svg")
    assert charts.count() == 4
    stroke = "(paths) => paths.map((path) => getComputedStyle(path).stroke)"
    assert all(len(set(chart.locator("path.line").evaluate_all(stroke))) == 2 for chart in charts.all())


def column(page, number):
    cells = page.locator(f".sortable tbody tr > :nth-child({number})")
    return [cell.inner_text() for cell in cells.all()]


def test_the_table_of_tags_is_sorted_by_a_click(open_named):
    page = open_named("tags").page
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


def test_tagged_images_are_searched_and_all_shown_without_scripts(open_named, page_file):
    page = open_named("tags").page
    for text, count in (("scene-", 12), ("no such tag anywhere", 0)):
        page.get_by_label("Search").fill(text)
        assert page.locator(".example:visible").count() == count
    page = open_named("tags", java_script_enabled=False).page
    assert (page.locator(".example").count(), len(column(page, 1))) == (12, 22)
    assert page_file("tags").stat().st_size < 2_000_000
