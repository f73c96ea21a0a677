"""What every reader returns: the data set as it is written down, not yet judged.

A reader looks at annotations only, never at the bytes of an image. It keeps captions
as it found them, whatever their type, and split names as the data set spells them:
judging them is the same for all formats and happens once, in `checks` and `captions`.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fne.core.errors import InputError

SHOWN = 5


@dataclass(frozen=True)
class Record:
    """One image of a data set.

    Attributes:
        id: the name the data set itself uses, a path below the image folder.
        split: the split's name, or None where the data set has no splits.
        captions: what stands for captions in the file, of any type.
        tags: sorted names of what is to be seen.
        source: the file that names the image, and `place` where in that file.
    """

    id: str
    split: str | None
    captions: tuple[object, ...]
    tags: tuple[str, ...]
    source: Path
    place: str


@dataclass(frozen=True)
class Reading:
    """The records of a data set, and in words and numbers what its reader left out."""

    records: list[Record]
    counts: Counter[str] = field(default_factory=Counter)


Reader = Callable[[Path, list[Path]], Reading]
"""Reads the data set below a root from its annotation files."""


def refuse(place: object, faults: Sequence[str], advice: str) -> None:
    """Stop with all faults of one place in one message, if there are any."""
    if faults:
        raise InputError(f"{place}: {shorten(faults)}; {advice}")


def shorten(items: Sequence[str]) -> str:
    """Return the first few items, and how many more there are."""
    more = [f"and {len(items) - SHOWN} more"] if len(items) > SHOWN else []
    return "; ".join([*items[:SHOWN], *more])


def examples(names: Sequence[str]) -> str:
    """Return the first three names, and a sign that there are more."""
    return ", ".join([*map(repr, names[:3]), *["…"] * (len(names) > 3)])


def sorted_tags(tags: Sequence[str]) -> tuple[str, ...]:
    """Return the different tags in order, without empty ones."""
    return tuple(sorted({tag.strip() for tag in tags} - {""}))
