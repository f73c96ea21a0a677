"""Full-Network Embeddings for finding images by sentences and sentences by images.

These names are the Python interface; `docs/search.md` introduces it:

    import fne

    store = fne.open_store("features/embeddings")            # rows of numbers, by id, split and layer
    catalog = fne.load_catalog()                             # images, captions, splits and tags
    model = fne.load_model()                                 # vectors of sentences and images
    metrics = fne.load_metrics()                             # the figures of the evaluation
    answer = fne.search("a red circle above a white triangle")  # what `fne search` finds

Every function works from any folder if it gets the project's folder as `root`. The modules behind these names
are imported when a name is first used: importing `fne` imports neither torch nor numba.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fne.api import Catalog, Model, Store, load_catalog, load_metrics, load_model, open_store
    from fne.core.errors import InputError
    from fne.search import search
    from fne.search.answer import Answer, Match

__all__ = [
    "Answer",
    "Catalog",
    "InputError",
    "Match",
    "Model",
    "Store",
    "load_catalog",
    "load_metrics",
    "load_model",
    "open_store",
    "search",
]

# The module of each public name. `fne.search` is a function and a package, see there.
_MODULES = {
    "Answer": "fne.search.answer",
    "Catalog": "fne.api",
    "InputError": "fne.core.errors",
    "Match": "fne.search.answer",
    "Model": "fne.api",
    "Store": "fne.api",
    "load_catalog": "fne.api",
    "load_metrics": "fne.api",
    "load_model": "fne.api",
    "open_store": "fne.api",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    if name == "search":
        return _import_module("fne.search")
    if name not in _MODULES:
        raise AttributeError(f"module 'fne' has no attribute {name!r}")
    value = getattr(_import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)
