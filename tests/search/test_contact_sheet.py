from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image as Pillow
from PIL import ImageColor

from fne.core.errors import InputError
from fne.search.answer import Answer, Match
from fne.search.contact_sheet import (
    BACKGROUND,
    ELLIPSIS,
    GAP,
    LINE,
    MARGIN,
    PLACEHOLDER,
    TILE,
    TRUE,
    WIDTH,
    draw_sheet,
    font,
    truncate,
    truncate_middle,
    wrap,
    write_sheet,
)
from tests.support.search import draw

LONG = "A very long sentence " * 20


def matches(
    count: int, file: Path | str | None, true: bool | None = None, caption: str | None = LONG
) -> list[Match]:
    sentences = [caption] if caption else []
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


def test_every_five_matches_take_one_more_row_of_the_same_height(red, monkeypatch):
    heights = [draw_sheet(answer(matches(count, red))).height for count in (0, 1, 5, 6, 10, 11)]
    assert heights[1] == heights[2] < heights[3] == heights[4] < heights[5]
    assert heights[5] - heights[4] == heights[4] - heights[2] == heights[1] - heights[0]
    monkeypatch.setattr("fne.search.contact_sheet.MAX_MATCHES", 5)
    assert draw_sheet(answer(matches(6, red))).height == heights[2]


def test_rows_are_as_high_as_the_longest_caption_needs(red):
    """Without captions there is no space for them; if one photo has a caption, all rows have the space."""
    captions = (None, "A dog.", LONG)
    bare, short, long = (draw_sheet(answer(matches(10, red, caption=each))) for each in captions)
    assert (short.height - bare.height, long.height - bare.height) == (2 * LINE, 2 * 3 * LINE)
    mixed = draw_sheet(answer([*matches(9, red, caption=None), *matches(1, red)]))
    assert mixed.height == long.height


def test_the_text_below_an_image_ends_above_the_next_row(red):
    for caption in (None, "A dog.", LONG):
        one, two = (draw_sheet(answer(matches(count, red, caption=caption))) for count in (5, 10))
        row = two.height - one.height
        gap = two.crop((0, one.height - MARGIN + 1, WIDTH, one.height - MARGIN + GAP - 1))
        assert colors(gap) == {rgb(BACKGROUND)}
        assert colors(two.crop((0, two.height - MARGIN + 1, WIDTH, two.height))) == {rgb(BACKGROUND)}
        assert row > TILE


def test_images_are_shown_and_nothing_reaches_into_the_margin(red):
    sheet = draw_sheet(answer(matches(5, red), text="words " * 200))
    assert rgb("red") in colors(sheet)
    for strip in ((0, 0, MARGIN - 5, sheet.height), (WIDTH - MARGIN + 5, 0, WIDTH, sheet.height)):
        assert colors(sheet.crop(strip)) == {rgb(BACKGROUND)}


def test_the_query_image_is_at_the_top_true_matches_are_marked_and_unreadable_ones_are_placeholders(red):
    sheet = draw_sheet(answer([], text=None, file=str(red)))
    assert rgb("red") in colors(sheet.crop((MARGIN, MARGIN, MARGIN + TILE, MARGIN + TILE)))
    assert rgb(TRUE) in colors(draw_sheet(answer(matches(1, red, true=True))))
    assert rgb(TRUE) not in colors(draw_sheet(answer(matches(1, red, true=False))))
    broken = red.with_name("broken.png")
    broken.write_bytes(b"no image")
    for each in (broken, red.with_name("gone.png"), None):
        assert rgb(PLACEHOLDER) in colors(draw_sheet(answer(matches(2, each))))


def test_images_are_rotated_by_their_exif_orientation(tmp_path):
    """A portrait photo is stored in landscape format with an EXIF orientation."""
    landscape = Pillow.new("RGB", (80, 40), "blue")
    landscape.paste("red", (0, 0, 40, 40))
    exif = Pillow.Exif()
    exif[0x0112] = 6  # rotate by 90 degrees clockwise: the left side becomes the top
    landscape.save(tmp_path / "landscape.png", exif=exif)
    sheet = draw_sheet(answer([], text=None, file=str(tmp_path / "landscape.png")))
    middle = MARGIN + TILE // 2
    assert sheet.getpixel((middle, middle - 10)) == rgb("red")
    assert sheet.getpixel((middle, middle + 10)) == rgb("blue")


def test_equal_answers_give_equal_bytes(tmp_path, red):
    for name in ("a.png", "b.png"):
        write_sheet(tmp_path / name, answer(matches(3, red)))
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


TEXTS = st.text(st.sampled_from("abc iWm.é"), max_size=60)


@given(TEXTS, st.integers(40, 200), st.integers(1, 4))
def test_wrapped_lines_fit_and_truncation_is_marked(text, width, max_lines):
    face = font(16)
    lines = wrap(text, face, width, max_lines)
    assert len(lines) <= max_lines
    assert all(face.getlength(line) <= width for line in lines)
    shown = " ".join(lines)
    assert ELLIPSIS in shown or shown == " ".join(text.split())


def test_a_text_is_truncated_between_words_if_one_fits():
    assert wrap("a purple square at the bottom", font(16), width=100, max_lines=1) == ["a purple …"]
    assert wrap("incomprehensibilities of all kinds", font(16), width=100, max_lines=1) == ["incomprehe…"]
    exact = int(font(16).getlength("a dog i"))
    assert wrap("a dog i", font(16), width=exact, max_lines=1) == ["a dog i"]


@given(TEXTS, st.integers(40, 200))
def test_truncated_text_fits_and_keeps_its_beginning_and_end(text, width):
    face = font(13)
    for shortened in (truncate(text, face, width), truncate_middle(text, face, width)):
        assert face.getlength(shortened) <= width
        assert (shortened == text) == (face.getlength(text) <= width)
    start, _, end = truncate_middle(text, face, width).partition(ELLIPSIS)
    assert text.startswith(start)
    assert text.endswith(end)


def test_an_earlier_sheet_is_replaced_and_a_photo_is_not(red, tmp_path):
    write_sheet(tmp_path / "sheet.png", answer(matches(1, red)))
    write_sheet(tmp_path / "sheet.png", answer(matches(2, red)))
    before = red.read_bytes()
    with pytest.raises(InputError, match="this command did not write it"):
        write_sheet(red, answer(matches(1, red)))
    assert red.read_bytes() == before


def test_a_query_is_not_replaced_even_if_it_is_an_earlier_sheet(red, tmp_path):
    sheet = tmp_path / "sheet.png"
    write_sheet(sheet, answer(matches(1, red)))
    with pytest.raises(InputError, match="is an input of this command"):
        write_sheet(sheet, answer(matches(1, red), text=None, file=str(sheet)))
