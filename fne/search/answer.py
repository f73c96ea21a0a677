"""The result of a search: the best matches, as text for the terminal, as JSON, or as HTML for a notebook.

A search scores all images of a `Pool`, which are those of the catalog or those of a folder,
and returns the best matches in an `Answer`.

The HTML refers to nothing outside itself: thumbnails are data URIs. All text is escaped, so nothing in a
caption or a file name can act as HTML.
"""

from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fne.core.errors import InputError
from fne.core.terminal import printable
from fne.search.open_project import CatalogContents, QueryImage
from fne.store.rows import Rows

if TYPE_CHECKING:
    from fne.search.folder import Folder  # slow to import

# Increased whenever a key of the JSON changes its name or meaning.
VERSION = 1
MAX_SHOWN = 100  # matches in a notebook or by `print`
LEFT = "text-align: left"


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
        return {"version": VERSION, **asdict(self)}

    def __str__(self) -> str:
        """Return what `fne search` prints, but at most `MAX_SHOWN` matches."""
        hidden = len(self.matches) - MAX_SHOWN
        return "\n".join(self.lines()[: MAX_SHOWN + 1] + [f"and {hidden} more matches"] * (hidden > 0))

    def lines(self) -> list[str]:
        """Return the lines for the terminal: rank, score, id and caption; a star marks true matches."""
        head = f"{self.found} for {printable(self.query)}, {printable(self.method)}"
        width = max((len(printable(match.id)) for match in self.matches), default=0)
        return [head, *(_line(match, width) for match in self.matches)]

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


@dataclass(frozen=True)
class Pool:
    """The images that are searched, each with a row in a store.

    Attributes:
        name: the name of the catalog or the folder.
        ids: the ids of the images.
        rows: the store of their rows.
        keys: the id of each image's row.
        file: maps an image's id to its file.
        sentences: maps an image's id to its captions.
        unreadable: files that could not be read, with the reason.
        splits: the number of images of each split, if they are those of the catalog.
    """

    name: str
    ids: list[str]
    rows: Rows
    keys: list[str]
    file: Callable[[str], Path | None]
    sentences: Callable[[str], list[str]]
    unreadable: dict[str, str] = field(default_factory=dict)
    splits: dict[str, int] = field(default_factory=dict)

    def matches(self, scores: np.ndarray, k: int, true: Collection[str] | None = None) -> list[Match]:
        """Return the `k` best images, given the scores of all; `true` are those paired with the query."""
        found = []
        for rank, position in enumerate(top_k(scores, k), start=1):
            image = self.ids[position]
            file = self.file(image)
            found.append(
                Match(
                    rank,
                    float(scores[position]),
                    image,
                    image,
                    str(file) if file else None,
                    self.sentences(image),
                    image in true if true else None,
                )
            )
        return found


def catalog_pool(
    catalog: CatalogContents,
    rows: Rows,
    exclude: QueryImage | None = None,
    chosen: Collection[str] | None = None,
) -> Pool:
    """Return the chosen images of the catalog that have a row; by default all, with those of the gallery."""
    # An imported store may have more images than the catalog.
    chosen = catalog.captioned if chosen is None else chosen
    ids = sorted(set(chosen) & set(rows.ids) - {exclude.id if exclude else None})
    splits = catalog.count_splits(ids)
    return Pool("the catalog", ids, rows, ids, catalog.file, catalog.sentences, splits=splits)


def folder_pool(folder: "Folder", rows: Rows, exclude: QueryImage | None = None) -> Pool:
    """Return all images of a folder; their rows are keyed by the digests of the files."""
    images = [image for image in folder.images if not exclude or image.sha256 != exclude.sha256]
    return Pool(
        str(folder.path),
        [image.id for image in images],
        rows,
        [image.sha256 for image in images],
        lambda name: folder.path / name,
        lambda name: [],
        folder.unreadable,
    )


def top_k(scores: np.ndarray, k: int) -> list[int]:
    """Return the positions of the `k` highest scores, best first; ties keep their order.

    Raises:
        InputError: if a score is NaN, which cannot be ordered.

    Example:
        >>> top_k(np.array([0.5, 0.9, 0.5, 0.1]), k=3)
        [1, 0, 2]
    """
    if np.isnan(scores).any():
        bad = int(np.isnan(scores).sum())
        raise InputError(f"{bad} of {len(scores)} scores are NaN; train the model again")
    if k >= len(scores):
        positions: list[int] = np.argsort(-scores, kind="stable").tolist()
        return positions
    # Only what is not below the k-th best is sorted: a large catalog takes longer to sort than to score.
    best = np.flatnonzero(scores >= np.partition(scores, -k)[-k])
    chosen: list[int] = best[np.argsort(-scores[best], kind="stable")][:k].tolist()
    return chosen


def format_score(score: float) -> str:
    """Return a score as text: integers without decimals, other numbers with four.

    Example:
        >>> format_score(1204.0), format_score(0.414)
        ('1204', '0.4140')
    """
    return f"{score:.0f}" if score == round(score) else f"{score:.4f}"


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
    from fne.search.thumbnails import thumbnail  # Pillow: slow to import

    source = thumbnail(Path(file)) if file else None
    return f'<img src="{source}" alt="">' if source else ""


def _text(text: str) -> str:
    return escape(printable(text))
