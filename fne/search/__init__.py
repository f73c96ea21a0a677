"""Search: images for a sentence, sentences for an image, and images that look similar.

The package itself can be called: `fne.search("a dog")` is the function of `fne.api.search`. Importing any
module of this package binds `fne.search` to the package, so a function of that name could not stay there.
"""

import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fne.search.answer import Answer


class _CallablePackage(ModuleType):
    """A package that is also a function."""

    def __call__(
        self,
        query: str | Path,
        *,
        root: str | Path = ".",
        by: str | None = None,
        folder: str | Path | None = None,
        k: int = 10,
    ) -> "Answer":
        """Search as `fne.api.search.search` does."""
        from fne.api.search import search  # imports modules of this package

        return search(query, root=root, by=by, folder=folder, k=k)


sys.modules[__name__].__class__ = _CallablePackage
