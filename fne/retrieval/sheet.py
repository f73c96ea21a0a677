"""The contact sheet: the query, and below it the best matches as a grid of pictures.

Pictures stand in a grid of fixed columns, and below all of them is the same room: as many
lines as the longest sentence takes, and none where nothing is said about any image. Only
the best `MOST` are shown. An image that cannot be shown is a gray tile that says so.
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
BELOW = 12  # from a picture to its text

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
    said = [_said(match) for match in matches]
    # A row: pictures, a line for rank and score, one for the name, and the sentences.
    row_height = TILE + BELOW + LINE * (2 + max(map(len, said), default=0)) + GAP
    rows = -(-len(matches) // COLUMNS)
    sheet = Image.new("RGB", (WIDTH, head + rows * row_height + MARGIN - GAP), PAPER)
    pen = ImageDraw.Draw(sheet)
    _draw_head(sheet, pen, answer, lines)
    for number, (match, sentence) in enumerate(zip(matches, said, strict=True)):
        row, column = divmod(number, COLUMNS)
        place = MARGIN + column * (TILE + GAP), head + row * row_height
        _draw_match(sheet, pen, match, sentence, place)
    return sheet


def _said(match: Match) -> list[str]:
    """Return the lines of what is said about a match."""
    said = printable(match.sentences[0]) if match.sentences else ""
    return wrap(said, font(TEXT), TILE, CAPTION_LINES)


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


def _draw_match(
    sheet: Image.Image, pen: ImageDraw.ImageDraw, match: Match, sentence: list[str], place: tuple[int, int]
) -> None:
    left, top = place
    _draw_picture(sheet, pen, match.file, left, top)
    if match.true:
        pen.rectangle((left - 5, top - 5, left + TILE + 4, top + TILE + 4), outline=TRUE, width=4)
    line = top + TILE + BELOW
    color = TRUE if match.true else INK
    pen.text((left, line), f"{match.rank}" + (" · true" if match.true else ""), fill=color, font=font(TEXT))
    score = in_digits(match.score)
    pen.text((left + TILE - font(TEXT).getlength(score), line), score, fill=FAINT, font=font(TEXT))
    name = cut_middle(printable(match.id), font(SMALL), TILE)
    pen.text((left, line + LINE + 2), name, fill=FAINT, font=font(SMALL))
    for number, words in enumerate(sentence, start=2):
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
