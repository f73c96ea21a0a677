"""How well one vector fits many, with NumPy alone: the similarities as a search needs them.

Every similarity is called as `similarity(images, captions)` with vectors (images, dim) and
(captions, dim), of which one is a single row, and returns a score for each row of the
other; higher is better. A score depends on its two vectors only, not on what else is in the block.

A similarity of `fne.ranking.similarities` without a twin here is no fault: torch is then asked.
"""

from collections.abc import Callable, Iterable

import numpy as np

Similarity = Callable[[np.ndarray, np.ndarray], np.ndarray]


def score(name: str, pairs: Iterable[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Return the scores of blocks of images and captions, one after the other, by the named similarity."""
    similarity = SIMILARITIES.get(name) or _with_torch(name)
    return np.concatenate([np.zeros(0), *(similarity(images, captions) for images, captions in pairs)])


def cosine(images: np.ndarray, captions: np.ndarray) -> np.ndarray:
    """The inner product: the cosine, since all vectors have length one."""
    products: np.ndarray = np.vecdot(images, captions)
    return products


def order(images: np.ndarray, captions: np.ndarray) -> np.ndarray:
    """Minus the squared length of what a caption exceeds its image by."""
    excess = np.maximum(captions - images, 0)
    squared: np.ndarray = np.vecdot(excess, excess)
    return 0 - squared  # and no zero with a sign


def order_root(images: np.ndarray, captions: np.ndarray) -> np.ndarray:
    """Minus the length of what a caption exceeds its image by."""
    lengths: np.ndarray = np.sqrt(-order(images, captions))
    return 0 - lengths


def _with_torch(name: str) -> Similarity:
    from fne.retrieval.with_torch import similarity  # takes seconds to import

    return similarity(name)


SIMILARITIES: dict[str, Similarity] = {"cosine": cosine, "order": order, "order_root": order_root}
