"""The search, as the command `fne search` does it."""

from pathlib import Path

from fne.api.project import open_project
from fne.core.errors import InputError
from fne.search.answer import Answer
from fne.search.engine import search as search_project


def search(
    query: str | Path,
    *,
    root: str | Path = ".",
    by: str | None = None,
    folder: str | Path | None = None,
    k: int = 10,
) -> Answer:
    """Find images for a sentence, sentences for an image, or images that look similar.

    A notebook shows the answer as a table with thumbnails.

    Args:
        query: a sentence, the id of an image of the catalog, or an image file.
        root: the folder of the project.
        by: compare embeddings of this kind, such as `fne`, instead of using the trained model.
        folder: search the images of this folder instead of the catalog.
        k: the number of matches.

    Raises:
        InputError: if the query is invalid, or if artifacts for it are missing.

    Example:
        >>> answer = fne.search("A red circle.", root=project, k=3)
        >>> [match.rank for match in answer.matches]
        [1, 2, 3]
        >>> fne.search("red-circle.png", root=project, by="fne").found
        'images'
    """
    if k < 1:
        raise InputError(f"k: expected at least 1, got {k}")
    place = Path(folder).expanduser() if folder is not None else None
    return search_project(open_project(root), str(query), by, place, k)
