"""The report page in a real browser: everything is visible, nothing is requested, no data is executed."""

import pytest
from click.testing import CliRunner

from stages.report import main
from tests.support.hostile import CAPTIONS
from tests.support.report import FULL, write_history, write_run

COLORS = ("red", "green", "blue", "gray", "pink")
SENTENCES = [
    tuple(f"a {size} {color} {thing}" for size in ("big", "small"))
    for color in COLORS
    for thing in ("dog", "cat", "bird", "fish")
]

CONTRAST = """
() => {
  // Red, green and blue up to 255, and the opacity; mixed colors are written as color(srgb …).
  const parts = (color) => {
    const [r, g, b, a = 1] = color.match(/[\\d.]+/g).map(Number);
    return [...[r, g, b].map((part) => part * (color.startsWith("color(") ? 255 : 1)), a];
  };
  const light = (color) => {
    const [r, g, b] = color.slice(0, 3).map((part) => {
      const value = part / 255;
      return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const solid = (element) => {
    const color = parts(getComputedStyle(element).backgroundColor);
    const below = color[3] < 1 ? solid(element.parentElement) : color;
    return color.slice(0, 3).map((part, place) => color[3] * part + (1 - color[3]) * below[place]);
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const found = [];
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.checkVisibility() || element.closest("script")) continue;
    const style = getComputedStyle(element);
    const [one, other] = [light(parts(element.closest("svg") ? style.fill : style.color)), light(solid(element))];
    found.push([(Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05), walker.currentNode.data.trim()]);
  }
  return found;
}
"""


def write_page(folder, **choices):
    run = write_run(folder, **choices)
    write_history(folder, {"train/loss": [3, 2, 1, 1], "val/rsum": [1, 3, 2, 4], "train/phase": [1, 1, 2, 2]})
    result = CliRunner().invoke(main, run.arguments)
    assert result.exit_code == 0, result.output
    return folder / "index.html"


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    return write_page(tmp_path_factory.mktemp("report"), sentences=SENTENCES, examples=40, more=FULL)


@pytest.fixture(scope="module")
def hostile_report(tmp_path_factory):
    groups = [tuple(CAPTIONS[start : start + 5]) for start in range(0, len(CAPTIONS), 5)]
    return write_page(tmp_path_factory.mktemp("hostile"), sentences=groups, examples=500, top=10)


def shown(page, gallery):
    return page.locator(f".gallery:has(#{gallery}) .example:visible")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 375])
def test_the_page_loads_from_disk_without_requests_or_errors(open_page, report, width, scheme):
    found = open_page(report, width=width, color_scheme=scheme)
    assert found.foreign_requests == []
    assert [url for url in found.requests if url.startswith("file:")] == [report.as_uri()]
    assert found.errors == []


def test_all_pictures_are_visible(open_page, report):
    page = open_page(report).page
    images = page.locator("img")
    assert images.count() > 20
    assert (
        images.evaluate_all("all => all.filter(one => !(one.complete && one.naturalWidth && one.width))")
        == []
    )
    charts = page.locator("figure.chart > svg:visible")
    assert charts.count() >= 6
    assert charts.evaluate_all("all => Math.min(...all.map(one => one.getBoundingClientRect().width))") > 300


def test_the_search_shows_the_examples_that_contain_every_word(open_page, report):
    page = open_page(report).page
    everything = shown(page, "sentences").count()
    page.get_by_label("Search").nth(1).fill("  RED do")
    texts = shown(page, "sentences").locator("h3").all_inner_texts()
    assert 0 < len(texts) < everything
    assert all("red" in text and "do" in text for text in texts)
    status = page.locator(".gallery:has(#sentences) output")
    assert status.inner_text() == f"{len(texts)} of {everything} shown"
    page.get_by_label("Search").nth(1).fill("zebra")
    assert shown(page, "sentences").count() == 0
    assert status.inner_text() == f"None of {everything} shown"
    page.get_by_label("Search").nth(1).fill("")
    assert shown(page, "sentences").count() == everything
    assert status.inner_text() == ""


def test_search_and_outcome_filter_combine(open_page, report):
    page = open_page(report).page
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


def test_the_search_works_by_keyboard_with_a_visible_focus(open_page, report):
    page = open_page(report).page
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
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    before = shown(page, "images").count()
    page.keyboard.type("blue bird")
    assert 0 < shown(page, "images").count() < before
    page.keyboard.press("Escape")
    assert shown(page, "images").count() == before


def test_the_outcome_filter_works_by_keyboard(open_page, report):
    page = open_page(report).page
    page.locator("input[name=images]").first.focus()
    page.keyboard.press("ArrowRight")
    assert shown(page, "images").count() == page.locator(".gallery:has(#images) .example.hit").count()


def test_without_scripts_everything_is_shown_the_filter_works_and_the_search_box_is_hidden(open_page, report):
    page = open_page(report, java_script_enabled=False).page
    assert shown(page, "images").count() == page.locator(".gallery:has(#images) .example").count() > 0
    assert page.locator("input[type=search]:visible").count() == 0
    page.locator("input[name=images][value=hit]").check()
    assert shown(page, "images").count() == page.locator(".gallery:has(#images) .example.hit").count()


@pytest.mark.parametrize("width", [320, 375, 768, 1280])
@pytest.mark.parametrize("which", ["report", "hostile_report"])
def test_nothing_is_wider_than_the_window(open_page, request, which, width):
    page = open_page(request.getfixturevalue(which), width=width).page
    page.locator("details").evaluate_all("all => all.forEach(one => { one.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_a_contrast_of_at_least_4_5(open_page, report, scheme):
    page = open_page(report, color_scheme=scheme).page
    page.locator("details").evaluate_all("all => all.forEach(one => { one.open = true; })")
    found = page.evaluate(CONTRAST)
    assert len(found) > 200
    assert [(round(contrast, 2), text) for contrast, text in found if contrast < 4.5] == []


def test_the_two_color_schemes_differ(open_page, report):
    backgrounds = {
        open_page(report, color_scheme=scheme).page.evaluate(
            "getComputedStyle(document.body).backgroundColor"
        )
        for scheme in ("light", "dark")
    }
    assert len(backgrounds) == 2


def test_500_hostile_captions_are_shown_and_execute_nothing(open_page, hostile_report):
    assert len(set(CAPTIONS)) == 500
    found = open_page(hostile_report)
    page = found.page
    assert page.locator(".gallery:has(#sentences) .example").count() == 500
    page.locator("details").evaluate_all("all => all.forEach(one => { one.open = true; })")
    page.locator("bdi").evaluate_all(
        "all => all.forEach(one => one.dispatchEvent(new MouseEvent('mouseover')))"
    )
    page.get_by_label("Search").first.fill(CAPTIONS[0])
    page.get_by_label("Search").first.fill("")
    page.wait_for_timeout(500)
    assert page.evaluate("window.ran") is None
    assert found.dialogs == []
    assert found.foreign_requests == []
    assert found.errors == []
    assert page.url == hostile_report.as_uri()
    assert page.locator("script").count() == 1
    assert (
        page.locator("iframe, object, embed, base, form, bdi :not(span.word), [onerror], [onload]").count()
        == 0
    )
    texts = page.locator(".gallery:has(#sentences) h3 bdi").evaluate_all(
        "all => all.map(one => one.textContent)"
    )
    assert sum("<script>" in text for text in texts) > 50


def test_the_same_captions_are_executed_in_a_page_that_does_not_escape_them(open_page, tmp_path):
    """So that the test above cannot pass because its captions are harmless."""
    path = tmp_path / "careless.html"
    path.write_text(f"<!DOCTYPE html><meta charset=utf-8><p>{CAPTIONS[0]}", encoding="utf-8")
    found = open_page(path)
    assert found.page.evaluate("window.ran") == 1
    assert found.dialogs == ["1"]
