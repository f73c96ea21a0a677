"""Captions brought into one form: NFC, no control characters, single spaces.

Long captions, emoji and repetitions are kept as they are, and counted. A caption in
which nothing can be read is refused.
"""

import re
import unicodedata
from collections.abc import Sequence

LONG = 1000

MENDED = "captions with control characters, line breaks or repeated spaces, made single spaces"
COMPOSED = "captions brought into Unicode's composed form (NFC)"
LENGTHY = f"captions longer than {LONG} characters, kept"
EMOJI = "captions with emoji or other symbols, kept"
REPEATED = "captions that repeat another of the same image, kept"

_SURROGATE = re.compile("[\ud800-\udfff]")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


class UnusableCaptionError(ValueError):
    """A caption that is refused; the message is the reason."""


def clean(raw: str | None) -> tuple[str, list[str]]:
    """Return the caption in its normal form and what there was to note about it.

    Raises:
        UnusableCaptionError: if it is null, empty, punctuation only or not valid Unicode.

    Example:
        >>> clean(" A dog  in the snow . ")[0]
        'A dog in the snow .'
    """
    if raw is None:
        raise UnusableCaptionError("null")
    if _SURROGATE.search(raw):
        raise UnusableCaptionError("not valid Unicode (a lone surrogate)")
    spaced = " ".join(_CONTROL.sub(" ", raw).split())
    if not spaced:
        raise UnusableCaptionError("empty")
    caption = unicodedata.normalize("NFC", spaced)
    symbols = not caption.isascii() and any(unicodedata.category(each) == "So" for each in caption)
    if not symbols and not any(map(str.isalnum, caption)):
        raise UnusableCaptionError("punctuation only")
    noted = {
        MENDED: spaced != raw.strip(" "),
        COMPOSED: caption != spaced,
        LENGTHY: len(caption) > LONG,
        EMOJI: symbols,
    }
    return caption, [note for note, holds in noted.items() if holds]


def repetitions(captions: Sequence[str]) -> int:
    """Return how many captions of one image repeat another one."""
    return len(captions) - len(set(captions))
