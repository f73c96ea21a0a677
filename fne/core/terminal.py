r"""Text for the terminal: file names, captions and manifests of others may hold control characters.

A control character can move the cursor, rename the terminal, and hide or forge lines. `harmless` shows each
as an escape such as `\u001b`, as in JSON. Everything that the stages and the `fne` command print passes it.
"""

import unicodedata

import click

# Control characters, lone surrogates (which cannot be encoded), and the separators of lines and paragraphs.
_CATEGORIES = ("Cc", "Cs", "Zl", "Zp")
# They reverse the order in which the rest of a line is shown.
_BIDIRECTIONAL = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def harmless(text: str, keep: str = "\n") -> str:
    r"""Return a text whose control characters are shown as escapes.

    Args:
        text: the text.
        keep: control characters that stay, by default line breaks.

    Example:
        >>> print(harmless("photo\x1b]0;title\x07.jpg"))
        photo\u001b]0;title\u0007.jpg
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(each if each in keep or not _is_control(each) else _escape(each) for each in text)


def printable(text: str) -> str:
    r"""Return a text in one line, with a single space for each run of spaces and control characters.

    Example:
        >>> print(printable("a dog\n\x1b[31m on  a log"))
        a dog [31m on a log
    """
    visible = "".join(" " if _is_control(each) else each for each in text)
    return " ".join(visible.split())


def say(text: str, err: bool = False) -> None:
    """Print a text of one or more lines, with `harmless` control characters, to standard output or error."""
    click.echo(harmless(text), err=err)


def _is_control(character: str) -> bool:
    return unicodedata.category(character) in _CATEGORIES or character in _BIDIRECTIONAL


def _escape(character: str) -> str:
    return f"\\u{ord(character):04x}"
