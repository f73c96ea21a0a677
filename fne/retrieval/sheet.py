"""The contact sheet: the query, and below it the best matches as a grid of pictures.

Everything has its fixed place, so that sheets of different queries can be compared by
eye; only the best `MOST` are shown. An image that cannot be shown is a gray tile that says so.
"""

from pathlib import Path

from PIL import Image, ImageDraw

from fne.retrieval.answer import Answer, Match, in_digits, printable
from fne.retrieval.lettering import cut, cut_middle, font, wrap
from fne.store.decode import UndecodableError, decode
from fne.store.files import replacing

COLUMNS = 5
MOST = 200  # a picture of all images of a large catalog would fill the memory
TILE = 224  # the side of a picture
GAP = 24
MARGIN = 40
WIDTH = 2 * MARGIN + COLUMNS * TILE + (COLUMNS - 1) * GAP
CAPTION_LINES = 3
TITLE, TEXT, SMALL = 30, 16, 13  # font sizes
LINE = 21  # from a line of text to the next
CAPTION = 12 + LINE * (1 + CAPTION_LINES) + LINE

PAPER, INK, FAINT, EMPTY, TRUE = "#fbfaf7", "#24292f", "#6e7781", "#f1efe9", "#1a7f37"


def write_sheet(path: Path, answer: Answer) -> None:
    """Draw an answer into a PNG file."""
    sheet = draw_sheet(answer)
    with replacing(path) as temporary:
        sheet.save(temporary, format="PNG")


def draw_sheet(answer: Answer) -> Image.Image:
    """Return the contact sheet of an answer."""
    lines = wrap(printable(answer.query), font(TITLE), WIDTH - 2 * MARGIN - _indent(answer), 3)
    head = MARGIN + LINE + len(lines) * (TITLE + 10) + LINE + GAP
    head = max(head, MARGIN + TILE + GAP) if _indent(answer) else head
    matches = answer.matches[:MOST]
    rows = -(-len(matches) // COLUMNS)
    sheet = Image.new("RGB", (WIDTH, head + rows * (TILE + CAPTION + GAP) + MARGIN - GAP), PAPER)
    pen = ImageDraw.Draw(sheet)
    _draw_head(sheet, pen, answer, lines)
    for number, match in enumerate(matches):
        row, column = divmod(number, COLUMNS)
        _draw_match(sheet, pen, match, MARGIN + column * (TILE + GAP), head + row * (TILE + CAPTION + GAP))
    return sheet


def _indent(answer: Answer) -> int:
    """Return the room for the query's picture, if it is one."""
    return 0 if answer.text is not None else TILE + GAP


def _draw_head(sheet: Image.Image, pen: ImageDraw.ImageDraw, answer: Answer, lines: list[str]) -> None:
    left, top = MARGIN + _indent(answer), MARGIN
    if answer.text is None:
        _draw_picture(sheet, pen, answer.file, MARGIN, MARGIN)
    pen.text((left, top), f"{answer.found.upper()} FOR", fill=FAINT, font=font(SMALL))
    for number, line in enumerate(lines):
        pen.text((left, top + LINE + number * (TITLE + 10)), line, fill=INK, font=font(TITLE))
    below = f"by {answer.by} ({answer.measure}), of {answer.candidates:,} {answer.found} of {answer.pool}"
    if answer.unknown_words:
        below += f"; unknown to the model: {', '.join(answer.unknown_words)}"
    place = (left, top + LINE + len(lines) * (TITLE + 10) + 6)
    pen.text(place, cut(printable(below), font(TEXT), WIDTH - MARGIN - left), fill=FAINT, font=font(TEXT))


def _draw_match(sheet: Image.Image, pen: ImageDraw.ImageDraw, match: Match, left: int, top: int) -> None:
    _draw_picture(sheet, pen, match.file, left, top)
    if match.true:
        pen.rectangle((left - 5, top - 5, left + TILE + 4, top + TILE + 4), outline=TRUE, width=4)
    line = top + TILE + 12
    color = TRUE if match.true else INK
    pen.text((left, line), f"{match.rank}" + (" true" if match.true else ""), fill=color, font=font(TEXT))
    score = in_digits(match.score)
    pen.text((left + TILE - font(TEXT).getlength(score), line), score, fill=FAINT, font=font(TEXT))
    name = cut_middle(printable(match.id), font(SMALL), TILE)
    pen.text((left, line + LINE + 2), name, fill=FAINT, font=font(SMALL))
    said = printable(match.sentences[0]) if match.sentences else ""
    for number, words in enumerate(wrap(said, font(TEXT), TILE, CAPTION_LINES), start=2):
        pen.text((left, line + number * LINE), words, fill=INK, font=font(TEXT))


def _draw_picture(
    sheet: Image.Image, pen: ImageDraw.ImageDraw, file: str | None, left: int, top: int
) -> None:
    pen.rectangle((left, top, left + TILE - 1, top + TILE - 1), fill=EMPTY)
    try:
        if file is None:
            raise UndecodableError("the catalog has its features only")
        picture = decode(Path(file))
    except UndecodableError as error:
        reason = ["no picture", *wrap(printable(str(error)), font(SMALL), TILE - 32, 4)]
        for number, words in enumerate(reason):
            pen.text((left + 16, top + 16 + number * LINE), words, fill=FAINT, font=font(SMALL))
        return
    picture.thumbnail((TILE, TILE), Image.Resampling.LANCZOS)
    sheet.paste(picture, (left + (TILE - picture.width) // 2, top + (TILE - picture.height) // 2))
