"""The contact sheet of a search: the query, and below it the best matches as a grid of images.

All rows have the same height, with space for the longest caption. At most `MAX_MATCHES` matches are shown. An
image that cannot be read is a gray tile with the reason. Text is wrapped between words and truncated to fit.
"""

from functools import cache
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont
from PIL.PngImagePlugin import PngInfo

from fne.core.files import replacing
from fne.core.outputs import check_output
from fne.core.terminal import printable
from fne.search.answer import Answer, Match, format_score
from fne.store.images import UndecodableError, decode

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont
ELLIPSIS = "…"
PNG = b"\x89PNG\r\n\x1a\n"  # how every PNG file begins
MARK = "fne search --sheet"  # by which an earlier contact sheet is recognized
COLUMNS = 5
MAX_MATCHES = 200  # bounds the memory
TILE = 224  # side of an image
GAP = 24
MARGIN = 40
WIDTH = 2 * MARGIN + COLUMNS * TILE + (COLUMNS - 1) * GAP
CAPTION_LINES = 3
TITLE, TEXT, SMALL = 30, 16, 13  # font sizes
LINE = 21  # line height
BELOW = 12  # space between an image and its text
# Colors.
BACKGROUND, FOREGROUND, MUTED, PLACEHOLDER, TRUE = "#fbfaf7", "#24292f", "#6e7781", "#f1efe9", "#1a7f37"


def check_sheet(path: Path, *inputs: Path) -> None:
    """Refuse to replace one of `inputs`, or anything but an earlier contact sheet; see `fne.core.outputs`."""
    check_output(path, "--sheet", lambda head: head.startswith(PNG) and MARK.encode() in head, *inputs)


def write_sheet(path: Path, answer: Answer) -> None:
    """Write the contact sheet of an answer to a PNG file."""
    sheet = draw_sheet(answer)
    mark = PngInfo()
    mark.add_text("Software", MARK)  # comes before the pixels
    check_sheet(path, *([Path(answer.file)] if answer.file else []))
    with replacing(path) as temporary:
        sheet.save(temporary, format="PNG", pnginfo=mark)


def draw_sheet(answer: Answer) -> Image.Image:
    """Return the contact sheet of an answer."""
    lines = wrap(printable(answer.query), font(TITLE), WIDTH - 2 * MARGIN - _indent(answer), 3)
    head = MARGIN + LINE + len(lines) * (TITLE + 10) + LINE + GAP
    head = max(head, MARGIN + TILE + GAP) if _indent(answer) else head
    matches = answer.matches[:MAX_MATCHES]
    captions = [_caption_lines(match) for match in matches]
    # A row: the images, a line for rank and score, a line for the name, and the captions.
    row_height = TILE + BELOW + LINE * (2 + max(map(len, captions), default=0)) + GAP
    rows = -(-len(matches) // COLUMNS)
    sheet = Image.new("RGB", (WIDTH, head + rows * row_height + MARGIN - GAP), BACKGROUND)
    pen = ImageDraw.Draw(sheet)
    _draw_head(sheet, pen, answer, lines)
    for number, (match, caption) in enumerate(zip(matches, captions, strict=True)):
        row, column = divmod(number, COLUMNS)
        place = MARGIN + column * (TILE + GAP), head + row * row_height
        _draw_match(sheet, pen, match, caption, place)
    return sheet


@cache
def font(size: int) -> Font:
    """Return Pillow's default font, which is the same on every machine."""
    return ImageFont.load_default(size)


def wrap(text: str, face: Font, width: int, max_lines: int) -> list[str]:
    """Break a text into at most `max_lines` lines no wider than `width`; the rest is truncated.

    Example:
        >>> wrap("a dog on a log", font(16), width=60, max_lines=2)
        ['a dog', 'on a log']
        >>> wrap("a dog on a log", font(16), width=60, max_lines=1)
        ['a dog …']
    """
    lines: list[str] = []
    words = text.split()
    while words and len(lines) < max_lines:
        last = len(lines) == max_lines - 1
        # The end of the last line, unless all remaining words fit.
        more = f" {ELLIPSIS}" if last and face.getlength(" ".join(words)) > width else ""
        count = 1
        while count < len(words) and face.getlength(" ".join(words[: count + 1]) + more) <= width:
            count += 1
        # A single word may still be too wide.
        lines.append(truncate(" ".join(words[:count]) + more, face, width))
        words = words[count:]
    return lines


def truncate(text: str, face: Font, width: int) -> str:
    """Return a text truncated at its end to `width`.

    Example:
        >>> truncate("a-very-long-name.jpg", font(16), width=80)
        'a-very-lon…'
    """
    if face.getlength(text) <= width:
        return text
    end = len(text)
    while end and face.getlength(text[:end] + ELLIPSIS) > width:
        end -= 1
    return text[:end] + ELLIPSIS


def truncate_middle(text: str, face: Font, width: int) -> str:
    """Return a text truncated in its middle to `width`, which keeps the extension of a file name.

    Example:
        >>> truncate_middle("a-very-long-name.jpg", font(16), width=120)
        'a-very-l…ame.jpg'
    """
    if face.getlength(text) <= width:
        return text
    kept = len(text) - 1
    while kept > 1 and face.getlength(_without_middle(text, kept)) > width:
        kept -= 1
    return _without_middle(text, kept)


def _caption_lines(match: Match) -> list[str]:
    """Return the wrapped caption of a match."""
    caption = printable(match.sentences[0]) if match.sentences else ""
    return wrap(caption, font(TEXT), TILE, CAPTION_LINES)


def _indent(answer: Answer) -> int:
    """Return the width that the query image takes, or 0 for a sentence."""
    return 0 if answer.text is not None else TILE + GAP


def _draw_head(sheet: Image.Image, pen: ImageDraw.ImageDraw, answer: Answer, lines: list[str]) -> None:
    left, top = MARGIN + _indent(answer), MARGIN
    if answer.text is None:
        _draw_image(sheet, pen, answer.file, MARGIN, MARGIN)
    pen.text((left, top), f"{answer.found.upper()} FOR", fill=MUTED, font=font(SMALL))
    for number, line in enumerate(lines):
        pen.text((left, top + LINE + number * (TITLE + 10)), line, fill=FOREGROUND, font=font(TITLE))
    below = answer.method
    if answer.unknown_words:
        below += f"; not in the vocabulary: {', '.join(answer.unknown_words)}"
    place = (left, top + LINE + len(lines) * (TITLE + 10) + 6)
    pen.text(
        place, truncate(printable(below), font(TEXT), WIDTH - MARGIN - left), fill=MUTED, font=font(TEXT)
    )


def _draw_match(
    sheet: Image.Image, pen: ImageDraw.ImageDraw, match: Match, caption: list[str], place: tuple[int, int]
) -> None:
    left, top = place
    _draw_image(sheet, pen, match.file, left, top)
    if match.true:
        pen.rectangle((left - 5, top - 5, left + TILE + 4, top + TILE + 4), outline=TRUE, width=4)
    line = top + TILE + BELOW
    color = TRUE if match.true else FOREGROUND
    pen.text((left, line), f"{match.rank}" + (" · true" if match.true else ""), fill=color, font=font(TEXT))
    score = format_score(match.score)
    pen.text((left + TILE - font(TEXT).getlength(score), line), score, fill=MUTED, font=font(TEXT))
    name = truncate_middle(printable(match.id), font(SMALL), TILE)
    pen.text((left, line + LINE + 2), name, fill=MUTED, font=font(SMALL))
    for number, words in enumerate(caption, start=2):
        pen.text((left, line + number * LINE), words, fill=FOREGROUND, font=font(TEXT))


def _draw_image(sheet: Image.Image, pen: ImageDraw.ImageDraw, file: str | None, left: int, top: int) -> None:
    pen.rectangle((left, top, left + TILE - 1, top + TILE - 1), fill=PLACEHOLDER)
    try:
        if file is None:
            raise UndecodableError("the catalog has only its features")
        picture = decode(Path(file))
    except UndecodableError as error:
        reason = ["no image", *wrap(printable(str(error)), font(SMALL), TILE - 32, 4)]
        for number, words in enumerate(reason):
            pen.text((left + 16, top + 16 + number * LINE), words, fill=MUTED, font=font(SMALL))
        return
    picture.thumbnail((TILE, TILE), Image.Resampling.LANCZOS)
    sheet.paste(picture, (left + (TILE - picture.width) // 2, top + (TILE - picture.height) // 2))


def _without_middle(text: str, kept: int) -> str:
    return text[: kept - kept // 2] + ELLIPSIS + text[len(text) - kept // 2 :]
