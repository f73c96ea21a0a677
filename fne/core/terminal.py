r"""Text for the terminal: durations, sizes and rates, and text of others, which may hold control characters.

A control character can move the cursor, rename the terminal, and hide or forge lines. `harmless` shows each
as an escape such as `\u001b`, as in JSON. Everything that the stages and the `fne` command print passes it.
"""

import unicodedata
from collections.abc import Sequence

import click

# Control characters, lone surrogates (which cannot be encoded), and the separators of lines and paragraphs.
_CATEGORIES = ("Cc", "Cs", "Zl", "Zp")
# They reverse the order in which the rest of a line is shown.
_BIDIRECTIONAL = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
BYTES = "B"  # the unit of work that is counted in bytes


def harmless(text: str, keep: str = "\n") -> str:
    r"""Return a text whose control characters are shown as escapes.

    Example:
        >>> print(harmless("photo\x1b]0;title\x07.jpg"))
        photo\u001b]0;title\u0007.jpg
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(each if each in keep or not _is_control(each) else f"\\u{ord(each):04x}" for each in text)


def printable(text: str) -> str:
    r"""Return a text in one line, with a single space for each run of spaces and control characters.

    Example:
        >>> print(printable("a dog\n\x1b[31m on  a log"))
        a dog [31m on a log
    """
    visible = "".join(" " if _is_control(each) else each for each in text)
    return " ".join(visible.split())


def say(text: str, err: bool = False, escapes: bool = False) -> None:
    """Print a text of one or more lines, with `harmless` control characters, to standard output or error.

    With `escapes`, the text may be `colored`; all else in it must be `printable`.
    """
    click.echo(harmless(text, "\n\x1b" if escapes else "\n"), err=err)


def colored(text: str, weight: float) -> str:
    """Return a text in green if its weight, from -1 to 1, is large, and in red if it is below 0.

    Escapes are left out where the output is not a terminal.
    """
    if abs(weight) < 0.25:
        return text
    color = "green" if weight > 0 else "red"
    return click.style(text, fg="black", bg=color) if abs(weight) > 0.5 else click.style(text, fg=color)


def format_time(seconds: float) -> str:
    """Return a duration as text.

    Example:
        >>> [format_time(each) for each in (4.2, 75, 4000, 200_000)]
        ['4 s', '1 min 15 s', '1 h 7 min', '2 d 8 h']
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    minutes = round(seconds / 60)
    if minutes < 24 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    hours = round(seconds / 3600)
    return f"{hours // 24} d {hours % 24} h"


def format_rate(rate: float, unit: str) -> str:
    """Return a speed as text: items per second, or seconds per item if that is easier to read.

    Example:
        >>> [format_rate(each, "image") for each in (1.4, 0.05, 1500)]
        ['1.40 images/s', '20.0 s per image', '1,500 images/s']
    """
    if unit == BYTES:
        return f"{rate / 1e6:,.1f} MB/s"
    if rate < 0.2:
        return f"{1 / rate:.1f} s per {unit}"
    return f"{rate:.2f} {unit}s/s" if rate < 100 else f"{rate:,.0f} {unit}s/s"


def format_bytes(count: float) -> str:
    """Return a size as text.

    Example:
        >>> format_bytes(2_870_000_000), format_bytes(450_000)
        ('2.9 GB', '0.5 MB')
    """
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"


def aligned(rows: Sequence[Sequence[str]], text_columns: int = 1) -> list[str]:
    """Return the rows of a table as lines: the first columns to the left, the others to the right.

    Example:
        >>> aligned([["", "R@1"], ["images", "9.5"]])
        ['        R@1', 'images  9.5']
    """
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if place < text_columns else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _is_control(character: str) -> bool:
    return unicodedata.category(character) in _CATEGORIES or character in _BIDIRECTIONAL
