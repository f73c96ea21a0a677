import base64
import io
from dataclasses import replace

from PIL import Image

from fne.search.answer import MAX_SHOWN, SIDE, Answer, Match, thumbnail
from tests.support.search import draw

PREFIX = "data:image/jpeg;base64,"


def test_control_characters_do_not_reach_the_terminal():
    match = Match(1, 0.5, "a\x1b]0;x\x07.png", "a", None, ["evil\r\x1b[2Jline\nbreak"], None)
    answer = Answer("images", "a\ndog\x9b", None, None, "model", "cosine", "the catalog", 1, [match])
    assert all(letter.isprintable() for line in answer.lines() for letter in line)
    assert answer.lines()[0].startswith("images for “a dog ”, by model")


def test_a_printed_answer_is_a_short_table():
    matches = [
        Match(rank, 0.5, f"{rank}.png", f"{rank}.png", None, ["A dog.", "x"], None) for rank in range(1, 201)
    ]
    answer = Answer("images", "a dog", None, None, "model", "cosine", "the catalog", 200, matches)
    lines = str(answer).splitlines()
    assert lines[:2] == answer.lines()[:2]
    assert lines[1] == "   1    0.5000   1.png    A dog."
    assert lines[-2:] == [answer.lines()[MAX_SHOWN], "and 100 more matches"]
    few = replace(answer, matches=matches[:3])
    assert str(few).splitlines() == few.lines()


def shown(*matches: Match, text: str | None = "a red circle", file: str | None = None) -> str:
    """Return what a notebook shows."""
    answer = Answer("images", text, None, file, "model", "cosine", "the catalog", 24, list(matches))
    return answer._repr_html_()


def test_a_notebook_shows_ranks_scores_captions_and_thumbnails(tmp_path):
    draw(tmp_path / "red.png", "red", "circle")
    match = Match(1, 0.5, "red.png", "red.png", str(tmp_path / "red.png"), ["A red circle.", "Red"], True)
    html = shown(match)
    assert "images for “a red circle”, by model (cosine), among 24 images of the catalog" in html
    assert "<td>1</td><td>0.5000</td>" in html
    assert "★" in html
    assert "A red circle.<br>Red" in html
    assert html.count('<img src="data:image/jpeg;base64,') == 1


def test_a_notebook_shows_the_query_image(tmp_path):
    draw(tmp_path / "red.png", "red", "circle")
    assert shown(text=None, file=str(tmp_path / "red.png")).count("<img ") == 1


def test_nothing_in_a_caption_or_a_name_acts_as_html():
    evil = '"><script>alert(1)</script>'
    html = shown(Match(1, 0.5, evil, evil, None, [evil, "a\x1b[31mdog"], None), text=evil)
    assert "<script" not in html
    assert "\x1b" not in html
    assert html.count("&lt;script&gt;") == 3


def test_a_long_answer_is_cut_in_a_notebook():
    matches = [Match(rank, 0.5, str(rank), str(rank), None, [], None) for rank in range(1, MAX_SHOWN + 3)]
    html = shown(*matches)
    assert html.count("<tr>") == MAX_SHOWN + 1
    assert html.endswith("<p>and 2 more matches</p>")


def test_a_thumbnail_is_a_small_jpeg_that_keeps_the_aspect(tmp_path):
    Image.new("RGB", (400, 200), "red").save(tmp_path / "red.png")
    uri = thumbnail(tmp_path / "red.png")
    assert uri is not None
    picture = Image.open(io.BytesIO(base64.b64decode(uri.removeprefix(PREFIX))))
    assert (picture.format, picture.size) == ("JPEG", (SIDE, SIDE // 2))


def test_a_file_that_cannot_be_read_has_none(tmp_path):
    (tmp_path / "broken.jpg").write_bytes(b"no image")
    assert thumbnail(tmp_path / "broken.jpg") is None
    assert thumbnail(tmp_path / "gone.jpg") is None
