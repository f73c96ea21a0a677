"""What a search found: the best matches, for people and for programs."""

import unicodedata
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from fne.core.errors import InputError

# Raised whenever a key of the JSON changes its name or meaning.
VERSION = 1


@dataclass(frozen=True)
class Match:
    """One of the best.

    Attributes:
        rank: its place, 1 is best.
        score: how well it fits; higher is better.
        id: of the image or, where sentences were asked for, of the caption.
        image: the id of the image, or its path below the folder that was searched.
        file: where the image is.
        sentences: what the catalog says about the image or, where sentences were asked for, the one found.
        true: whether the catalog pairs it with the query; None where it cannot know.
    """

    rank: int
    score: float
    id: str
    image: str
    file: str | None
    sentences: list[str]
    true: bool | None


@dataclass(frozen=True)
class Answer:
    """The matches of one query, best first.

    Attributes:
        found: what the matches are: `images` or `sentences`.
        text: the sentence that was asked for, or None.
        image: the id of the image that was asked for, or None.
        file: the image file that was asked for, or None.
        by: `model`, or the kind of embedding.
        measure: how scores are computed.
        pool: the place that was searched, in words.
        candidates: how many there were to choose from.
        unknown_words: words of the query that the model does not know.
        unreadable: files of the folder that could not be searched, with the reason.
        matches: the best.
    """

    found: str
    text: str | None
    image: str | None
    file: str | None
    by: str
    measure: str
    pool: str
    candidates: int
    matches: list[Match]
    unknown_words: list[str] = field(default_factory=list)
    unreadable: dict[str, str] = field(default_factory=dict)

    @property
    def query(self) -> str:
        """What was asked for, in words."""
        return f"“{self.text}”" if self.text is not None else str(self.image or self.file)

    def as_dict(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        return {"version": VERSION, **asdict(self)}

    def lines(self) -> list[str]:
        """Return what the terminal shows: rank, score, id and what is said; a star marks true matches."""
        count = f"{self.candidates:,} {self.found} of {self.pool}"
        head = f"{self.found} for {printable(self.query)}, by {self.by} ({self.measure}), of {count}"
        width = max((len(printable(match.id)) for match in self.matches), default=0)
        return [head, *(_line(match, width) for match in self.matches)]


def best(scores: np.ndarray, k: int) -> list[int]:
    """Return the positions of the `k` highest scores, best first, equal ones in their order.

    Raises:
        InputError: if a score is NaN, which has no place in any order.

    Example:
        >>> best(np.array([0.5, 0.9, 0.5, 0.1]), k=3)
        [1, 0, 2]
    """
    if np.isnan(scores).any():
        bad = int(np.isnan(scores).sum())
        raise InputError(f"{bad} of {len(scores)} scores are not numbers; train the model again")
    positions: list[int] = np.argsort(-scores, kind="stable")[:k].tolist()
    return positions


def printable(text: str) -> str:
    r"""Return a text in one line, without what would move a terminal's cursor or change its colors.

    Example:
        >>> printable("a dog\n\x1b[31m on  a log")
        'a dog [31m on a log'
    """
    visible = "".join(" " if unicodedata.category(each)[0] == "C" else each for each in text)
    return " ".join(visible.split())


def in_digits(score: float) -> str:
    """Return a score for people: whole numbers as such, others with four digits.

    Example:
        >>> in_digits(1204.0), in_digits(0.414)
        ('1204', '0.4140')
    """
    return f"{score:.0f}" if score == round(score) else f"{score:.4f}"


def _line(match: Match, width: int) -> str:
    head = f"{match.rank:>4} {in_digits(match.score):>9} {'*' if match.true else ' '}"
    said = printable(match.sentences[0]) if match.sentences else ""
    return f"{head} {printable(match.id):<{width}}  {said}".rstrip()
