from pathlib import Path

import pytest
from PIL import Image as Pillow
from PIL import ImageColor

from fne.retrieval.answer import Answer, Match
from fne.retrieval.sheet import EMPTY, GAP, LINE, MARGIN, PAPER, TILE, TRUE, WIDTH, draw_sheet, write_sheet
from tests.retrieval.projects import draw

LONG = "A very long sentence " * 20


def matches(
    count: int, file: Path | str | None, true: bool | None = None, said: str | None = LONG
) -> list[Match]:
    sentences = [said] if said else []
    return [
        Match(rank, 1 / rank, f"{'long' * 20}-{rank}.png", "a", str(file) if file else None, sentences, true)
        for rank in range(1, count + 1)
    ]


def answer(found: list[Match], text: str | None = "a dog", file: str | None = None) -> Answer:
    return Answer("images", text, None, file, "model", "cosine", "the catalog", 100, found)


def colors(picture: Pillow.Image) -> set[tuple[int, ...]]:
    return {color for _, color in picture.getcolors(picture.width * picture.height)}


def rgb(color: str) -> tuple[int, ...]:
    return ImageColor.getrgb(color)


@pytest.fixture
def red(tmp_path) -> Path:
    draw(tmp_path / "red.png", "red", "square")
    return tmp_path / "red.png"


def test_every_five_matches_take_one_more_row_of_the_same_height(red):
    heights = [draw_sheet(answer(matches(count, red))).height for count in (0, 1, 5, 6, 10, 11)]
    assert heights[1] == heights[2] < heights[3] == heights[4] < heights[5]
    assert heights[5] - heights[4] == heights[4] - heights[2] == heights[1] - heights[0]


def test_no_room_is_left_for_sentences_that_nobody_wrote(red):
    """Two rows of photos lose three lines each; if a single one has a sentence, all rows keep their room."""
    silent, short, long = (draw_sheet(answer(matches(10, red, said=said))) for said in (None, "A dog.", LONG))
    assert (short.height - silent.height, long.height - silent.height) == (2 * LINE, 2 * 3 * LINE)
    mixed = draw_sheet(answer([*matches(9, red, said=None), *matches(1, red)]))
    assert mixed.height == long.height


def test_the_text_below_a_picture_ends_above_the_next_one(red):
    for said in (None, "A dog.", LONG):
        one, two = (draw_sheet(answer(matches(count, red, said=said))) for count in (5, 10))
        row = two.height - one.height
        gap = two.crop((0, one.height - MARGIN + 1, WIDTH, one.height - MARGIN + GAP - 1))
        assert colors(gap) == {rgb(PAPER)}
        assert colors(two.crop((0, two.height - MARGIN + 1, WIDTH, two.height))) == {rgb(PAPER)}
        assert row > TILE


def test_only_the_best_are_shown(red, monkeypatch):
    monkeypatch.setattr("fne.retrieval.sheet.MOST", 5)
    assert draw_sheet(answer(matches(6, red))).height == draw_sheet(answer(matches(5, red))).height


def test_pictures_are_shown_and_nothing_runs_over_the_margin(red):
    sheet = draw_sheet(answer(matches(5, red), text="words " * 200))
    assert rgb("red") in colors(sheet)
    for strip in ((0, 0, MARGIN - 5, sheet.height), (WIDTH - MARGIN + 5, 0, WIDTH, sheet.height)):
        assert colors(sheet.crop(strip)) == {rgb(PAPER)}


def test_true_matches_are_marked(red):
    assert rgb(TRUE) in colors(draw_sheet(answer(matches(1, red, true=True))))
    assert rgb(TRUE) not in colors(draw_sheet(answer(matches(1, red, true=False))))


def test_the_picture_that_was_asked_with_stands_at_the_top(red):
    sheet = draw_sheet(answer([], text=None, file=str(red)))
    assert rgb("red") in colors(sheet.crop((MARGIN, MARGIN, MARGIN + TILE, MARGIN + TILE)))


@pytest.mark.parametrize("content", [None, b"", b"no image"])
def test_a_picture_that_cannot_be_shown_is_a_tile_that_says_so(tmp_path, content):
    file = tmp_path / "a.png"
    if content is not None:
        file.write_bytes(content)
    for each in (file, None):
        sheet = draw_sheet(answer(matches(2, each)))
        assert rgb(EMPTY) in colors(sheet)


def test_pictures_are_turned_as_their_camera_was(tmp_path):
    """A photo taken upright is kept lying, with a note of how to turn it."""
    lying = Pillow.new("RGB", (80, 40), "blue")
    lying.paste("red", (0, 0, 40, 40))
    exif = Pillow.Exif()
    exif[0x0112] = 6  # to be turned clockwise by a quarter: the left comes to the top
    lying.save(tmp_path / "lying.png", exif=exif)
    sheet = draw_sheet(answer([], text=None, file=str(tmp_path / "lying.png")))
    middle = MARGIN + TILE // 2
    assert sheet.getpixel((middle, middle - 10)) == rgb("red")
    assert sheet.getpixel((middle, middle + 10)) == rgb("blue")


def test_equal_answers_give_equal_bytes(tmp_path, red):
    for name in ("a.png", "b.png"):
        write_sheet(tmp_path / name, answer(matches(3, red)))
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
