"""The kinds of image embedding that can be made from activations.

Every kind is called as `kind(activations, statistics, choices)` with an open store of
activations, and returns an `Embedding`: the layers it keeps, the type of its values and
the function that turns a block of activations into rows.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from fne.features.discretize import discretize
from fne.features.statistics import Statistics, standardize
from fne.store.layout import TERNARY, Layer
from fne.store.rows import Rows


@dataclass(frozen=True)
class Choices:
    """The parameters of the kinds; a kind ignores what it does not use."""

    low: float
    high: float
    layer: str


@dataclass(frozen=True)
class Embedding:
    """How a block of activations (images, features) becomes rows of a store."""

    layers: list[Layer]
    dtype: str
    transform: Callable[[np.ndarray], np.ndarray]


def fne(activations: Rows, statistics: Statistics, choices: Choices) -> Embedding:
    """The full-network embedding: all layers, standardized and discretized."""

    def transform(block: np.ndarray) -> np.ndarray:
        return discretize(standardize(block, statistics), choices.low, choices.high)

    return Embedding(activations.layers, TERNARY, transform)


def layer(activations: Rows, statistics: Statistics, choices: Choices) -> Embedding:
    """A single layer, each row divided by its length: the usual baseline."""
    columns = activations.columns(choices.layer)

    def transform(block: np.ndarray) -> np.ndarray:
        rows = block[:, columns].astype(np.float64)
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        # A row of zeros has no direction; it stays as it is.
        return rows / np.where(lengths > 0, lengths, 1.0)

    return Embedding([Layer(choices.layer, columns.stop - columns.start)], "float32", transform)


def embed_shards(activations: Rows, embedding: Embedding) -> Iterator[tuple[int, list[str], np.ndarray]]:
    """Yield the number, ids and embeddings of each shard of the activations."""
    for number, ids in activations.plan().items():
        blocks = [embedding.transform(block) for _, block in activations.blocks(ids)]
        yield number, ids, np.concatenate(blocks)


EMBEDDINGS = {"fne": fne, "layer": layer}
