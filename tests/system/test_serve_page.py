"""The page of `fne serve` in a real browser: search, drop, paste, keyboard, narrow screen, hostile text."""

import base64
import io
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager

import pytest
from PIL import Image

from fne.store.catalog import Captioned, read_captions, write_captions
from tests.support.hostile import CAPTIONS
from tests.support.search import draw, run_stages


@contextmanager
def started(folder, *arguments):
    """Start a server, and give its address."""
    command = [sys.executable, "-u", "-m", "fne", "serve", "--port", "0", *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen(command, cwd=folder, **pipes) as server:
        yield re.search(r"http://127\.0\.0\.1:\d+/", server.stdout.readline())[0]
        server.terminate()
        server.wait(30)


@pytest.fixture(scope="module")
def album(tmp_path_factory):
    """The folder that the server searches."""
    folder = tmp_path_factory.mktemp("page") / "album"
    for number, color in enumerate(["navy", "teal", "olive"]):
        draw(folder / f"{number} <b>.png", color, "circle")
    return folder


@pytest.fixture(scope="module")
def server(finished, album):
    """A server of the small project, with a folder of photos."""
    project = shutil.copytree(finished, album.parent / "project")
    with started(project, "--in", str(album)) as address:
        yield address


@pytest.fixture(scope="module")
def hostile_server(finished, tmp_path_factory):
    """A server of a catalog whose captions and tags would like to run."""
    project = tmp_path_factory.mktemp("hostile") / "project"
    shutil.copytree(finished, project)
    file = project / "data/captions.jsonl"
    texts = iter([tuple(CAPTIONS[start : start + 25]) for start in range(0, 500, 25)])
    hostile = [
        Captioned(each.id, each.split, next(texts) if each.captions else (), (CAPTIONS[3], each.tags[0]))
        for each in read_captions(file)[0]
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(project)
        write_captions(file, hostile)
        run_stages("tokenize", "train", "encode")
    with started(project) as address:
        yield address


@pytest.fixture
def photo(tmp_path):
    path = tmp_path / "mine.png"
    draw(path, "navy", "square")
    return path


def search(page, text):
    page.get_by_label("A sentence").fill(text)
    page.keyboard.press("Enter")
    page.locator("#status", has_text=f"Images for “{text}”").wait_for(timeout=120_000)


def cards(page):
    return page.locator("#matches .match")


def loaded(page, selector):
    """Wait until all visible pictures are drawn, and return how many there are."""
    page.wait_for_function(
        "(selector) => [...document.querySelectorAll(selector)].every(one => one.complete && one.naturalWidth)",
        arg=selector,
    )
    return page.locator(selector).count()


def test_a_sentence_finds_images_with_scores_and_stars(open_page, server):
    found = open_page(server)
    page = found.page
    search(page, "something red zebra")
    assert cards(page).count() == 24
    assert loaded(page, "#matches img") == 24
    line = cards(page).first.locator(".line").inner_text()
    assert re.fullmatch(r"1\s*-?\d\.\d{4}", line.split("★")[0].strip())
    assert page.locator("#unknown").inner_text() == "Not in the vocabulary, and ignored: zebra"
    search(page, "something red")
    page.locator(".star").first.wait_for()
    assert page.locator(".star").count() == 3
    assert "3 paired with the query (★)" in page.locator("#status").inner_text()
    assert found.errors == []
    assert {re.match(r"https?://[^/]+/|blob:|data:", url)[0] for url in found.requests} == {server}


def test_filters_choose_a_split_and_a_tag(open_page, server):
    page = open_page(server).page
    search(page, "a red circle")
    page.get_by_label("split").select_option("test")
    page.locator("#status", has_text="of 8 images").wait_for()
    page.get_by_label("tag").fill("square")
    page.keyboard.press("Tab")
    page.locator("#status", has_text="of 4 images").wait_for()
    assert cards(page).count() == 4


def test_an_image_shows_what_is_known_about_it(open_page, server):
    page = open_page(server).page
    search(page, "A red circle.")
    page.locator(".match[title='red-circle.png']").click()
    dialog = page.get_by_role("dialog")
    dialog.wait_for()
    assert dialog.locator("#details-sentences").inner_text() == "A red circle.\nSomething red"
    dialog.get_by_text("What the models say").wait_for()
    page.locator("#similar .match").first.wait_for()
    assert page.locator("#similar .match").count() == 12
    assert "by fne (ternary dot product)" in page.locator("#similar-status").inner_text()
    dialog.get_by_label("by").select_option("conv1")
    page.locator("#similar-status", has_text="by fne, layer conv1").wait_for()
    dialog.get_by_text("What made it").click()
    assert "activations" in dialog.locator("#details-made").inner_text()
    dialog.get_by_role("button", name="red", exact=True).click()
    page.locator("#status", has_text="of 3 images").wait_for()
    assert not dialog.is_visible()


# Makes a file of a text in base64, and gives it to the window as the named event does.
GIVE = """([content, name, kind]) => {
  const bytes = Uint8Array.from(atob(content), (one) => one.charCodeAt(0));
  const data = new DataTransfer();
  data.items.add(new File([bytes], name, { type: "image/png" }));
  if (kind === "paste") {
    window.dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, cancelable: true }));
  } else {
    window.dispatchEvent(new DragEvent("dragover", { dataTransfer: data, cancelable: true }));
    window.dispatchEvent(new DragEvent("drop", { dataTransfer: data, cancelable: true }));
  }
}"""


def give(page, content, name="mine.png", kind="drop"):
    page.evaluate(GIVE, [base64.b64encode(content).decode(), name, kind])


def test_a_dropped_photo_finds_sentences_and_look_alikes(open_page, server, photo):
    found = open_page(server)
    page = found.page
    page.locator("#facts", has_text="24 images").wait_for()
    give(page, photo.read_bytes())
    page.locator("#status", has_text="Sentences for your photo").wait_for(timeout=120_000)
    assert cards(page).count() == 24
    assert page.locator("#photo-name").inner_text() == "mine.png"
    page.locator("#photo-says", has_text="tags: ").wait_for()
    page.get_by_role("radio", name="look-alikes").check()
    page.locator("#status", has_text="Look-alikes of your photo: best 24 of 24 images").wait_for()
    page.locator("#photo-layer").select_option("conv2")
    page.locator("#status", has_text="layer conv2").wait_for()
    page.get_by_role("button", name="Remove").click()
    assert not page.locator("#photo").is_visible()
    assert found.errors == []


def test_a_photo_can_be_chosen_and_pasted(open_page, server, photo):
    page = open_page(server).page
    page.locator("#file").set_input_files(photo)
    page.locator("#status", has_text="Sentences for your photo").wait_for(timeout=120_000)
    give(page, photo.read_bytes(), "pasted.png", "paste")
    page.locator("#photo-name", has_text="pasted.png").wait_for()


def test_what_is_no_photo_says_why(open_page, server):
    page = open_page(server).page
    page.locator("#facts", has_text="24 images").wait_for()
    give(page, b"GIF89a damaged")
    page.locator("#status", has_text=re.compile("not an image|damaged")).wait_for(timeout=60_000)
    buffer = io.BytesIO()
    Image.new("1", (9000, 6000)).save(buffer, "PNG")
    give(page, buffer.getvalue())
    page.locator("#status", has_text="9000x6000 pixels, more than 50000000 in all").wait_for(timeout=60_000)


def test_the_folder_is_searched(open_page, server):
    page = open_page(server).page
    page.locator("#folder").wait_for(state="hidden", timeout=180_000)
    page.get_by_label("in the catalog").select_option("folder")
    search(page, "a red circle")
    page.locator("#status", has_text="of 3 images of album").wait_for()
    assert loaded(page, "#matches img") == 3
    cards(page).first.click()
    page.get_by_role("dialog").wait_for()
    assert "<b>.png" in page.locator("#details-name").inner_text()
    page.locator("#details-sentences-title", has_text="Sentences of the catalog that fit best").wait_for()
    assert page.locator("#details-sentences li").count() == 5


def test_photos_that_are_added_and_removed_are_found_while_the_page_is_open(open_page, server, album):
    page = open_page(server).page
    page.locator("#folder").wait_for(state="hidden", timeout=180_000)
    page.get_by_label("in the catalog").select_option("folder")
    assert page.get_by_label("split").is_disabled()
    search(page, "a red circle")
    page.locator("#status", has_text="of 3 images of album").wait_for()
    draw(album / "later.png", "maroon", "line")
    (album / "damaged.png").write_bytes(b"\x89PNG damaged")
    page.locator("#notice", has_text="The folder “album” has changed; search again").wait_for(timeout=60_000)
    assert cards(page).count() == 3  # nothing moves while it is looked at
    search(page, "a red circle")
    page.locator("#status", has_text="of 4 images of album").wait_for()
    assert not page.locator("#notice").is_visible()
    assert loaded(page, "#matches img") == 4
    assert "1 file of the folder “album” cannot be read: damaged.png" in page.locator("#folder").inner_text()
    (album / "later.png").unlink()
    (album / "damaged.png").unlink()
    page.locator("#notice", has_text="The folder “album” has changed; search again").wait_for(timeout=60_000)
    search(page, "a red circle")
    page.locator("#status", has_text="of 3 images of album").wait_for()


def test_the_start_page_shows_pictures_of_the_catalog(open_page, server):
    page = open_page(server).page
    page.locator("#status", has_text="images of the catalog:").wait_for()
    assert loaded(page, "#matches img") == cards(page).count() > 0
    # Nothing of a picture is cut off.
    fit = page.locator("#matches img").first.evaluate("picture => getComputedStyle(picture).objectFit")
    assert fit == "contain"


def test_a_photo_clears_the_sentence_and_its_sentences_are_a_list(open_page, server, photo):
    page = open_page(server).page
    search(page, "a red circle")
    page.locator("#file").set_input_files(photo)
    page.locator("#status", has_text="Sentences for your photo").wait_for(timeout=120_000)
    assert page.get_by_label("A sentence").input_value() == ""
    assert (cards(page).count(), page.locator("#matches img").count()) == (24, 0)
    page.get_by_role("button", name="Remove").click()
    page.locator("#status", has_text="images of the catalog:").wait_for()


def test_an_empty_page_offers_sentences_of_the_catalog(open_page, server):
    page = open_page(server).page
    first = page.locator("#examples button").first
    first.wait_for()
    text = first.inner_text()
    first.click()
    page.locator("#status", has_text=f"Images for “{text}”").wait_for(timeout=120_000)
    assert not page.locator("#examples").is_visible()
    assert page.locator(".star").count() >= 1


def test_everything_works_by_keyboard(open_page, server):
    page = open_page(server).page
    page.locator("#facts", has_text="24 images").wait_for()
    page.get_by_role("button", name="Search").focus()
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "text"
    page.keyboard.type("a red circle")
    page.keyboard.press("Enter")
    page.locator("#status", has_text="“a red circle”").wait_for()
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement === document.querySelector('#matches .match')")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("ArrowRight")
    second = cards(page).nth(1).get_attribute("title")
    page.keyboard.press("Enter")
    page.get_by_role("dialog").wait_for()
    assert page.locator("#details-name").inner_text() == second
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="hidden")
    assert page.evaluate("document.activeElement.title") == second
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("document.activeElement.id") == "text"


def test_the_address_repeats_the_query_and_back_returns(open_page, server):
    page = open_page(server).page
    search(page, "a red circle")
    page.locator("#status", has_text="“a red circle”").wait_for()
    search(page, "a blue square")
    page.locator("#status", has_text="“a blue square”").wait_for()
    assert page.url == f"{server}?q=a+blue+square"
    page.go_back()
    page.locator("#status", has_text="“a red circle”").wait_for()
    assert page.get_by_label("A sentence").input_value() == "a red circle"
    page.get_by_label("split").select_option("test")
    page.locator("#status", has_text="of 8 images").wait_for()
    assert page.url == f"{server}?q=a+red+circle&split=test"
    page.reload()
    page.locator("#status", has_text="of 8 images").wait_for()
    assert page.get_by_label("split").input_value() == "test"


def test_nothing_is_wider_than_the_window(open_page, server):
    found = open_page(server)
    page, widths = found.page, (320, 375, 1280)
    search(page, "something red zebra")
    for width in widths:
        found.require_width(width)
    cards(page).first.click()
    page.get_by_role("dialog").wait_for()
    page.locator("#similar .match").first.wait_for()
    page.get_by_text("What made it").click()
    dialog = "document.querySelector('dialog')"
    for width in widths:
        found.require_width(width)
        assert page.evaluate(f"{dialog}.scrollWidth <= {dialog}.clientWidth")
        assert page.get_by_role("dialog").bounding_box()["width"] <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_a_contrast_of_at_least_4_5(open_page, server, scheme):
    found = open_page(server, color_scheme=scheme)
    page = found.page
    search(page, "something red zebra")
    found.require_contrast(texts=50)
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 22, 26)"
    assert dark == (scheme == "dark")


def test_hostile_text_is_shown_and_executes_nothing(open_page, hostile_server):
    found = open_page(hostile_server)
    page = found.page
    search(page, CAPTIONS[0])
    assert cards(page).count() == 24
    for number in (0, 5):
        cards(page).nth(number).click()
        page.get_by_role("dialog").wait_for()
        page.locator("#similar .match").first.wait_for()
        page.keyboard.press("Escape")
    page.wait_for_timeout(500)
    assert page.evaluate("window.ran") is None
    assert found.dialogs == []
    assert found.errors == []
    assert {re.match(r"https?://[^/]+/|blob:|data:", url)[0] for url in found.requests} == {hostile_server}
    assert page.locator("script").count() == 1
    assert page.locator("iframe, object, embed, base, bdi *, [onerror], [onload]").count() == 0
    shown = page.locator("#matches bdi").evaluate_all("all => all.map(one => one.textContent)")
    assert sum("<" in text for text in shown) >= 10


def test_the_policy_forbids_scripts_that_the_page_does_not_come_with(open_page, server):
    """So that the test above does not depend on the page alone."""
    found = open_page(server)
    ran = found.page.evaluate(
        """() => {
          const made = document.createElement("div");
          try { made.innerHTML = "<img src=x onerror=window.ran=1>"; } catch (error) { return error.name; }
          return "accepted";
        }"""
    )
    assert ran == "TypeError"
