"""Text that fits a given width in pixels: wrapped between words, and cut with a sign that there is more."""

from functools import cache

from PIL import ImageFont

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont
MORE = "…"


@cache
def font(size: int) -> Font:
    """Return Pillow's own font, which is the same on every machine."""
    return ImageFont.load_default(size)


def wrap(text: str, face: Font, width: int, most: int) -> list[str]:
    """Break a text into at most `most` lines no wider than `width`; what does not fit is cut off.

    Example:
        >>> wrap("a dog on a log", font(16), width=60, most=2)
        ['a dog', 'on a log']
        >>> wrap("a dog on a log", font(16), width=60, most=1)
        ['a dog …']
    """
    lines: list[str] = []
    words = text.split()
    while words and len(lines) < most:
        last = len(lines) == most - 1
        # What the last line ends with, unless all that is left fits.
        more = f" {MORE}" if last and face.getlength(" ".join(words)) > width else ""
        count = 1
        while count < len(words) and face.getlength(" ".join(words[: count + 1]) + more) <= width:
            count += 1
        # A single word may still be too wide.
        lines.append(cut(" ".join(words[:count]) + more, face, width))
        words = words[count:]
    return lines


def cut(text: str, face: Font, width: int) -> str:
    """Return the beginning of a text that is no wider than `width`.

    Example:
        >>> cut("a-very-long-name.jpg", font(16), width=80)
        'a-very-lon…'
    """
    if face.getlength(text) <= width:
        return text
    end = len(text)
    while end and face.getlength(text[:end] + MORE) > width:
        end -= 1
    return text[:end] + MORE


def cut_middle(text: str, face: Font, width: int) -> str:
    """Return a name no wider than `width` that keeps its beginning and its end.

    Example:
        >>> cut_middle("a-very-long-name.jpg", font(16), width=120)
        'a-very-l…ame.jpg'
    """
    if face.getlength(text) <= width:
        return text
    kept = len(text) - 1
    while kept > 1 and face.getlength(_halves(text, kept)) > width:
        kept -= 1
    return _halves(text, kept)


def _halves(text: str, kept: int) -> str:
    return text[: kept - kept // 2] + MORE + text[len(text) - kept // 2 :]
