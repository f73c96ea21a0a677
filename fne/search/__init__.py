"""Search: images for a sentence, sentences for an image, and images that look similar.

`fne.search` is this package and a function of the Python interface: the function takes the place of the
module, with its attributes. Importing any module of a package binds the package's name, so a function of that
name could not stay beside the package.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fne.core.errors import InputError

if TYPE_CHECKING:
    from fne.search.answer import Answer


def search(
    query: str | Path,
    *,
    root: str | Path = ".",
    by: str | None = None,
    model: str = "matching",
    folder: str | Path | None = None,
    split: str | None = None,
    tag: str | None = None,
    k: int = 10,
    explain: bool = False,
) -> "Answer":
    """Find images for a sentence, sentences for an image, or images that look similar.

    `print` shows the answer as a table, and a notebook shows it with thumbnails.

    Args:
        query: a sentence, the id of an image of the catalog, or an image file.
        root: the folder of the project.
        by: compare embeddings of this kind, such as `fne`, instead of using the trained model.
        model: what to search with: `matching`, `tuned` for the model of the fine-tuned network, or `imported`
            for the vectors that the section `imported` names.
        folder: search the images of this folder instead of the catalog.
        split: search only this split of the catalog, such as `test`.
        tag: search only images of the catalog that have this tag.
        k: the number of matches.
        explain: give each match the words of the sentence, with the drop of the score without each.

    Raises:
        InputError: if the query is invalid, or if artifacts for it are missing.

    Example:
        >>> answer = fne.search("A red circle.", root=project, k=3)
        >>> [match.rank for match in answer.matches]
        [1, 2, 3]
        >>> fne.search("red-circle.png", root=project, by="fne").found
        'images'
    """
    from fne.search import engine  # imports this module
    from fne.search.open_project import open_project

    if k < 1:
        raise InputError(f"k: expected at least 1, got {k}")
    place = Path(folder).expanduser() if folder is not None else None
    return engine.search(
        open_project(root, model, imported=True), str(query), by, place, k, split, tag, explain
    )


def _replace_module(function: Any) -> None:
    """Let a function stand for this package: what the import system looks at are its attributes."""
    package = sys.modules[__name__]
    for name in ("__name__", "__file__", "__loader__", "__package__", "__path__", "__spec__"):
        setattr(function, name, getattr(package, name))
    sys.modules[__name__] = function


_replace_module(search)
