"""The kinds of image embedding that can be made from activations.

Every kind is called as `kind(activations, statistics, choices)` with an open store of
activations, and returns an `Embedding`: the layers it keeps, the type of its values and
the function that turns a block of activations into rows.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fne.core.errors import InputError
from fne.features.discretize import discretize
from fne.features.layers import ALL, kept_layers
from fne.features.statistics import Statistics, standardize
from fne.features.thresholds import THRESHOLDS
from fne.store.layout import TERNARY, Layer
from fne.store.rows import Rows

# The z-scores that `thresholds` led to, in the settings of the embeddings.
LOW, HIGH = "z_low", "z_high"


@dataclass(frozen=True)
class Choices:
    """The parameters of the kinds; a kind ignores what it does not use."""

    low: float
    high: float
    layer: str
    layers: str | Sequence[str] = ALL
    thresholds: str = "fixed"

    @classmethod
    def recorded(cls, settings: Mapping[str, Any]) -> "Choices":
        """Return the choices that repeat what the settings of some embeddings say, thresholds as found."""
        low, high = settings.get(LOW, settings["low"]), settings.get(HIGH, settings["high"])
        return cls(low, high, settings["layer"], settings.get("layers", ALL))


@dataclass(frozen=True)
class Embedding:
    """How a block of activations (images, features) becomes rows of a store.

    A ternary embedding also says which of its features vary among the training images, and
    the thresholds that were found.
    """

    layers: list[Layer]
    dtype: str
    transform: Callable[[np.ndarray], np.ndarray]
    varies: np.ndarray | None = None
    found: dict[str, float] = field(default_factory=dict)


def fne(activations: Rows, statistics: Statistics, choices: Choices) -> Embedding:
    """The full-network embedding: standardized and discretized."""
    layers, columns = _kept(activations, choices.layers)
    find = THRESHOLDS[choices.thresholds]
    low, high = find(activations, statistics, columns, choices.low, choices.high)
    ordinary = statistics.only(columns)

    def transform(block: np.ndarray) -> np.ndarray:
        return discretize(block[:, columns], ordinary, low, high)

    return Embedding(layers, TERNARY, transform, ordinary.varies, {LOW: low, HIGH: high})


def zscore(activations: Rows, statistics: Statistics, choices: Choices) -> Embedding:
    """The z-scores themselves: what `fne` has before it is discretized."""
    layers, columns = _kept(activations, choices.layers)
    ordinary = statistics.only(columns)
    largest = float(np.finfo(np.float16).max)

    def transform(block: np.ndarray) -> np.ndarray:
        # A feature that hardly varies among the training images can be enormous in another one.
        scores: np.ndarray = np.clip(standardize(block[:, columns], ordinary), -largest, largest)
        return scores.astype(np.float16)

    return Embedding(layers, "float16", transform)


def raw(activations: Rows, statistics: Statistics, choices: Choices) -> Embedding:
    """The activations, each row divided by its length."""
    layers, columns = _kept(activations, choices.layers)
    return Embedding(layers, "float32", lambda block: _unit_rows(block[:, columns]))


def layer(activations: Rows, statistics: Statistics, choices: Choices) -> Embedding:
    """A single layer, each row divided by its length: the usual baseline."""
    columns = activations.columns(choices.layer)
    kept = [Layer(choices.layer, columns.stop - columns.start)]
    return Embedding(kept, "float32", lambda block: _unit_rows(block[:, columns]))


def _kept(activations: Rows, choice: str | Sequence[str]) -> tuple[list[Layer], np.ndarray | slice]:
    """Return the layers that are kept and their columns."""
    try:
        names = kept_layers([each.name for each in activations.layers], choice)
    except ValueError as error:
        raise InputError(f"{activations.artifact.path}: {error}; see `embed.layers` in params.yaml") from None
    layers = [each for each in activations.layers if each.name in names]
    if layers == activations.layers:
        return layers, slice(None)
    all_columns = np.arange(activations.features)
    return layers, np.concatenate([all_columns[activations.columns(name)] for name in names])


def _unit_rows(block: np.ndarray) -> np.ndarray:
    rows = block.astype(np.float64)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    # A row of zeros has no direction; it stays as it is.
    scaled: np.ndarray = (rows / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)
    return scaled


EMBEDDINGS = {"fne": fne, "layer": layer, "raw": raw, "zscore": zscore}
