"""What is searched: the images of the catalog, or those of a folder."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fne.retrieval.answer import Match, best
from fne.retrieval.project import Catalog
from fne.retrieval.query import Picture
from fne.store.rows import Rows

if TYPE_CHECKING:
    from fne.retrieval.index import Folder


@dataclass(frozen=True)
class Pool:
    """Images with a row each.

    Attributes:
        name: the place, in words.
        ids: of the images.
        rows: the store of their rows.
        keys: the id of each image's row.
        file: from an image's id to its file.
        sentences: from an image's id to what is said about it.
        unreadable: files that are not among the images, with the reason.
    """

    name: str
    ids: list[str]
    rows: Rows
    keys: list[str]
    file: Callable[[str], Path | None]
    sentences: Callable[[str], list[str]]
    unreadable: dict[str, str] = field(default_factory=dict)

    def matches(self, scores: np.ndarray, k: int, true: Collection[str] | None = None) -> list[Match]:
        """Return the `k` best images by the scores of all; `true` are those that the catalog pairs."""
        found = []
        for rank, position in enumerate(best(scores, k), start=1):
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


def catalog_pool(catalog: Catalog, rows: Rows, leave_out: Picture | None = None) -> Pool:
    """Return all images of the catalog that have a row, those of the gallery too."""
    # Imported features may be of more images than the catalog has.
    ids = sorted(catalog.captioned.keys() & set(rows.ids) - {leave_out.id if leave_out else None})
    return Pool("the catalog", ids, rows, ids, catalog.file, catalog.sentences)


def folder_pool(folder: "Folder", rows: Rows, leave_out: Picture | None = None) -> Pool:
    """Return all images of a folder."""
    images = [image for image in folder.images if not leave_out or image.sha256 != leave_out.sha256]
    return Pool(
        str(folder.path),
        [image.id for image in images],
        rows,
        [image.sha256 for image in images],
        lambda name: folder.path / name,
        lambda name: [],
        folder.unreadable,
    )
