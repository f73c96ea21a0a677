"""The order in which a tagger learns and writes the tags of an image."""

from collections.abc import Callable

import numpy as np

from fne.describing.concepts import Concepts


def frequent_first(concepts: Concepts) -> np.ndarray:
    """Return the numbers of the concepts by falling training frequency (concepts)."""
    ranked = sorted(concepts.names, key=lambda name: (-concepts.counts[concepts.numbers[name]], name))
    return np.array([concepts.numbers[name] for name in ranked])


def rare_first(concepts: Concepts) -> np.ndarray:
    """Return the numbers of the concepts by rising training frequency, ties alphabetically (concepts).

    The rare tags of an image come first, so that the frequent ones do not hide them.
    """
    ranked = sorted(concepts.names, key=lambda name: (concepts.counts[concepts.numbers[name]], name))
    return np.array([concepts.numbers[name] for name in ranked])


def tag_sequences(labels: np.ndarray, order: np.ndarray) -> list[list[int]]:
    """Return the concepts of each image in the order in which a tagger writes them.

    Args:
        labels: which concepts each image has (images, concepts).
        order: all concepts in order, by an entry of `ORDERS` (concepts).

    Example:
        >>> tag_sequences(np.array([[True, True, False], [False, False, False]]), np.array([2, 1, 0]))
        [[1, 0], []]
    """
    return [order[row].tolist() for row in labels.astype(bool)[:, order]]


ORDERS: dict[str, Callable[[Concepts], np.ndarray]] = {
    "frequent_first": frequent_first,
    "rare_first": rare_first,
}
