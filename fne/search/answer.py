"""The result of a search: the best matches, as text for the terminal, as JSON, or as HTML for a notebook.

The HTML refers to nothing outside itself: thumbnails are data URIs. All text is escaped, so nothing in a
caption or a file name can act as HTML.
"""

import base64
import io
from dataclasses import asdict, dataclass, field, replace
from html import escape
from pathlib import Path
from typing import Any

from fne.core.terminal import colored, printable
from fne.matching.word_removal import LEVELS, Word, levels

# Increased whenever a key of the JSON changes its name or meaning.
VERSION = 1
MAX_SHOWN = 100  # matches in a notebook or by `print`
MAX_NAMED = 5  # unreadable files that are named
LEFT = "text-align: left"
SIDE, QUALITY = 128, 85  # thumbnails: pixels, and JPEG quality


@dataclass(frozen=True)
class Match:
    """One match.

    Attributes:
        rank: the rank, from 1.
        score: the similarity to the query; higher is better.
        id: the id of the image or, if sentences are searched, of the caption.
        image: the id of the image, or its path relative to the folder that was searched.
        file: the path of the image.
        sentences: the captions of the image or, if sentences are searched, the one that matched.
        true: whether the catalog pairs it with the query; None if that is unknown.
        words: how much each word of the sentence matters, if that was asked for.
    """

    rank: int
    score: float
    id: str
    image: str
    file: str | None
    sentences: list[str]
    true: bool | None
    words: list[Word] = field(default_factory=list)


@dataclass(frozen=True)
class Answer:
    """The matches of one query, best first.

    Attributes:
        found: what the matches are: `images` or `sentences`.
        text: the sentence of the query, or None.
        image: the id of the query image, or None.
        file: the file of the query image, or None.
        by: `model`, or the kind of embedding.
        measure: the similarity that computed the scores.
        pool: the name of what was searched.
        candidates: the number of images or sentences that were searched.
        matches: the best matches.
        unknown_words: words of the query that are not in the vocabulary.
        unreadable: files of the folder that could not be read, with the reason.
        splits: the number of images or sentences of each split of the catalog that were searched.
        tag: the tag that the searched images have, or None.
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
    splits: dict[str, int] = field(default_factory=dict)
    tag: str | None = None

    @property
    def query(self) -> str:
        """The query as text."""
        return f"“{self.text}”" if self.text is not None else str(self.image or self.file)

    @property
    def method(self) -> str:
        """How, and among what, the matches were found, as text."""
        pool = f"{self.pool} with the tag {self.tag}" if self.tag else self.pool
        splits = ", ".join(f"{split} {count:,}" for split, count in self.splits.items())
        among = f"{self.candidates:,} {self.found} of {pool}{f' ({splits})' if splits else ''}"
        return f"by {self.by} ({self.measure}), among {among}"

    def as_dict(self) -> dict[str, Any]:
        """Return the content of the JSON that `--json` prints."""
        values = {"version": VERSION, **asdict(self)}
        for match in values["matches"]:
            if not match["words"]:
                del match["words"]  # not asked for
        return values

    def __str__(self) -> str:
        """Return what `fne search` prints, but at most `MAX_SHOWN` matches."""
        hidden = len(self.matches) - MAX_SHOWN
        lines = replace(self, matches=self.matches[:MAX_SHOWN]).lines()
        return "\n".join(lines + [f"and {hidden} more matches"] * (hidden > 0))

    def lines(self, colors: bool = False) -> list[str]:
        """Return the lines for the terminal: rank, score, id and caption; a star marks true matches.

        A line below a match has its words with the drop of the score without each, if wanted in `colors`.
        """
        head = f"{self.found} for {printable(self.query)}, {printable(self.method)}"
        width = max((len(printable(match.id)) for match in self.matches), default=0)
        return [head, *(line for match in self.matches for line in _lines(match, width, colors))]

    def _repr_html_(self) -> str:
        """Return what a notebook shows: a table with thumbnails of at most `MAX_SHOWN` matches."""
        title = f"{escape(self.found)} for {_text(self.query)}, {_text(self.method)}"
        caption = f'<caption style="caption-side: top; {LEFT}">{_picture(self.file)} {title}</caption>'
        head = "".join(
            f'<th style="{LEFT}">{name}</th>' for name in ("rank", "score", "", "image", "caption")
        )
        rows = "".join(_html_row(match) for match in self.matches[:MAX_SHOWN])
        hidden = len(self.matches) - MAX_SHOWN
        more = f"<p>and {hidden} more matches</p>" if hidden > 0 else ""
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{more}"


def format_score(score: float) -> str:
    """Return a score as text: integers without decimals, other numbers with four.

    Example:
        >>> format_score(1204.0), format_score(0.414)
        ('1204', '0.4140')
    """
    return f"{score:.0f}" if score == round(score) else f"{score:.4f}"


def name_unreadable(unreadable: dict[str, str]) -> str:
    """Return a warning that names some of the files that could not be read, with the reasons."""
    named = [printable(f"{file}: {reason}") for file, reason in list(unreadable.items())[:MAX_NAMED]]
    more = [f"and {len(unreadable) - MAX_NAMED} more"] if len(unreadable) > MAX_NAMED else []
    files = "1 file" if len(unreadable) == 1 else f"{len(unreadable)} files"
    return f"Warning: {files} skipped, not readable as images: {'; '.join([*named, *more])}"


def thumbnail(file: Path) -> str | None:
    """Return an image as a small JPEG in a data URI, or None if the file cannot be read."""
    from fne.store.images import UndecodableError, decode  # Pillow: slow to import

    try:
        picture = decode(file)
    except UndecodableError:
        return None
    picture.thumbnail((SIDE, SIDE))
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=QUALITY)
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _lines(match: Match, width: int, colors: bool) -> list[str]:
    words = [
        colored(f"{printable(word.text)} {word.drop:+.3f}", colors * level / LEVELS)
        for word, level in zip(match.words, levels(match.words), strict=True)
    ]
    return [_line(match, width), *[f"{'':16} {'  '.join(words)}"] * bool(words)]


def _line(match: Match, width: int) -> str:
    head = f"{match.rank:>4} {format_score(match.score):>9} {'*' if match.true else ' '}"
    caption = printable(match.sentences[0]) if match.sentences else ""
    return f"{head} {printable(match.id):<{width}}  {caption}".rstrip()


def _html_row(match: Match) -> str:
    star = '<td title="the catalog pairs it with the query">★</td>' if match.true else "<td></td>"
    picture = f'<td style="{LEFT}">{_picture(match.file)}<br>{_text(match.id)}</td>'
    sentences = "<br>".join(_text(each) for each in match.sentences)
    scores = f"<td>{match.rank}</td><td>{format_score(match.score)}</td>"
    return f'<tr>{scores}{star}{picture}<td style="{LEFT}">{sentences}</td></tr>'


def _picture(file: str | None) -> str:
    source = thumbnail(Path(file)) if file else None
    return f'<img src="{source}" alt="">' if source else ""


def _text(text: str) -> str:
    return escape(printable(text))
