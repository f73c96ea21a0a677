"""The kinds of image embedding, and the `embed` section that chooses one.

Every kind of `EMBEDDINGS` is called as `kind(activations, statistics, choices)` with an open store of
activations. It returns an `Embedding`: the layers it keeps, the type of its values and the function that
turns a block of activations into rows.

A full-network embedding (`fne`) keeps, of every feature of an image, only whether it is unusually weak (-1),
ordinary (0) or unusually strong (+1) compared with the training images. Its two thresholds come from an entry
of `THRESHOLDS`, called as `way(activations, statistics, columns, low, high)` with the columns that are kept.
It returns two z-scores: one pair for the whole embedding, as in the paper.

An entry of `ROWS` scales the rows of any kind. Kinds that end in a number type round them to that type.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import DTypeLike
from pydantic import BeforeValidator, Field, model_validator

from fne.core.errors import InputError
from fne.core.settings import Section, not_one_of, one_of
from fne.features.standardize import Statistics, contiguous, run_in_threads, standardize
from fne.store.layout import TERNARY, Layer, count_views, view_layers
from fne.store.rows import Rows

ALL = "all"
# The layers whose names begin with one of these; the same words are used in `params.yaml`.
GROUPS = ("conv", "fc")
# So many layers from one end of the network.
FROM_END = re.compile(r"(first|last):([1-9][0-9]{0,3})")
# Bins of a thousandth of a deviation. Beyond 64 deviations lies less than one in 4,096 z-scores,
# because the z-scores of a feature have variance 1.
REACH = 64
STEPS = 1024
# The z-scores of the thresholds, in the settings of the embeddings.
LOW, HIGH = "z_low", "z_high"
# The root mean square of an embedding, in its settings, and the numbers of an int8 code per root mean square.
RMS = "rms"
INT8_STEPS, INT8_LARGEST = 8, 127


@dataclass(frozen=True)
class Choices:
    """The parameters of the kinds; a kind ignores those that it does not use."""

    low: float
    high: float
    layer: str
    layers: str | Sequence[str] = ALL
    thresholds: str = "fixed"
    rows: str = "none"
    rms: float | None = None  # what was found; None: find it

    @classmethod
    def recorded(cls, settings: Mapping[str, Any]) -> "Choices":
        """Return the choices that repeat embeddings with these settings, with their thresholds."""
        low, high = settings.get(LOW, settings["low"]), settings.get(HIGH, settings["high"])
        rms = settings.get(RMS)
        return cls(low, high, settings["layer"], settings["layers"], rows=settings["rows"], rms=rms)


@dataclass(frozen=True)
class Embedding:
    """How a block of activations (images, features) becomes rows of a store."""

    layers: list[Layer]
    dtype: str
    transform: Callable[[np.ndarray], np.ndarray]  # from activations to rows
    # Which features of a ternary embedding vary among the training images.
    varies: np.ndarray | None = None
    # What the training images decide: thresholds, the root mean square.
    found: dict[str, float] = field(default_factory=dict)


def fne(activations: Rows, statistics: Statistics, choices: Choices) -> Embedding:
    """The full-network embedding: standardized and discretized."""
    layers, columns = _kept_columns(activations, choices.layers)
    find = THRESHOLDS[choices.thresholds]
    low, high = find(activations, statistics, columns, choices.low, choices.high)
    ordinary = statistics.only(columns)

    def transform(block: np.ndarray) -> np.ndarray:
        return discretize(block[:, columns], ordinary, low, high)

    embedding = Embedding(layers, TERNARY, transform, ordinary.varies, {LOW: low, HIGH: high})
    return _scaled(embedding, activations, statistics, choices)


def sign(activations: Rows, statistics: Statistics, choices: Choices) -> Embedding:
    """The sign of each z-score, one bit of information; 0 only for features that do not vary."""
    layers, columns = _kept_columns(activations, choices.layers)
    ordinary = statistics.only(columns)

    def transform(block: np.ndarray) -> np.ndarray:
        above = np.where(block[:, columns] > ordinary.mean, 1, -1)
        return np.where(ordinary.varies, above, 0).astype(np.int8)

    embedding = Embedding(layers, TERNARY, transform, ordinary.varies)
    return _scaled(embedding, activations, statistics, choices)


def zscore(activations: Rows, statistics: Statistics, choices: Choices) -> Embedding:
    """The z-scores: `fne` before it is discretized."""
    layers, columns = _kept_columns(activations, choices.layers)
    ordinary = statistics.only(columns)
    largest = float(np.finfo(np.float16).max)

    def transform(block: np.ndarray) -> np.ndarray:
        # A feature that hardly varies among the training images can be enormous in another image.
        scores: np.ndarray = np.clip(standardize(block[:, columns], ordinary), -largest, largest)
        return scores.astype(np.float16)

    return _scaled(Embedding(layers, "float16", transform), activations, statistics, choices)


def raw(activations: Rows, statistics: Statistics, choices: Choices) -> Embedding:
    """The activations."""
    layers, columns = _kept_columns(activations, choices.layers)
    return _scaled(_selected(layers, columns), activations, statistics, choices)


def layer(activations: Rows, statistics: Statistics, choices: Choices) -> Embedding:
    """The activations of a single layer, the usual baseline."""
    _refuse_views(activations)
    columns = activations.columns(choices.layer)
    kept = [Layer(choices.layer, columns.stop - columns.start)]
    return _scaled(_selected(kept, columns), activations, statistics, choices)


def plain(activations: Rows, statistics: Statistics, choices: Choices) -> Embedding:
    """The activations of a single layer as they are; of a store with several views, those of all views.

    Training then draws a view of each image per epoch, and everything else takes the mean of the views.
    """
    views = count_views(activations.layers)
    if views == 1:
        return layer(activations, statistics, choices)
    found = view_layers([Layer(choices.layer, 0)], views)
    columns = [activations.columns(each.name) for each in found]
    kept = [replace(each, features=own.stop - own.start) for each, own in zip(found, columns, strict=True)]
    places = np.concatenate([np.arange(own.start, own.stop) for own in columns])
    return _scaled(_selected(kept, places), activations, statistics, choices)


def blocks(activations: Rows, statistics: Statistics, choices: Choices) -> Embedding:
    """The activations, each layer scaled to length one by itself, so that every layer has the same weight."""
    layers, columns = _kept_columns(activations, choices.layers)
    embedding = unit_layers(_selected(layers, columns), _not_measured)
    return _scaled(embedding, activations, statistics, choices)


def raw_float16(activations: Rows, statistics: Statistics, choices: Choices) -> Embedding:
    """The activations, scaled as `rows` says, in half precision."""
    embedding = raw(activations, statistics, choices)
    largest = float(np.finfo(np.float16).max)

    def transform(block: np.ndarray) -> np.ndarray:
        return _rounded(embedding.transform(block), largest, np.float16)

    return replace(embedding, dtype="float16", transform=transform)


def raw_int8(activations: Rows, statistics: Statistics, choices: Choices) -> Embedding:
    """The activations, scaled as `rows` says, as whole numbers of one byte."""
    return _int8(raw(activations, statistics, choices), activations, statistics, choices)


def zscore_int8(activations: Rows, statistics: Statistics, choices: Choices) -> Embedding:
    """The z-scores, scaled as `rows` says, as whole numbers of one byte."""
    return _int8(zscore(activations, statistics, choices), activations, statistics, choices)


def as_they_are(embedding: Embedding, measure: "Measure") -> Embedding:
    """Leave the rows as the kind makes them."""
    return embedding


def unit(embedding: Embedding, measure: "Measure") -> Embedding:
    """Scale each row to length one, in float32; ternary rows then take 16 times the space."""
    return replace(embedding, dtype="float32", transform=lambda block: unit_rows(embedding.transform(block)))


def unit_layers(embedding: Embedding, measure: "Measure") -> Embedding:
    """Scale each layer of a row to length one by itself, in float32."""
    ends = np.cumsum([each.features for each in embedding.layers])

    def transform(block: np.ndarray) -> np.ndarray:
        parts = np.split(embedding.transform(block), ends[:-1], axis=1)
        return np.concatenate([unit_rows(part) for part in parts], axis=1)

    return replace(embedding, dtype="float32", transform=transform)


def unit_rms(embedding: Embedding, measure: "Measure") -> Embedding:
    """Divide all values by one number, for a root mean square of one over the training images, in float32."""
    rms = measure(embedding)

    def transform(block: np.ndarray) -> np.ndarray:
        return (embedding.transform(block) / rms).astype(np.float32)

    found = embedding.found | {RMS: rms}
    return replace(embedding, dtype="float32", transform=transform, found=found)


def unit_rows(block: np.ndarray) -> np.ndarray:
    """Return rows divided by their lengths, in float32; a row of zeros has no direction and stays zero.

    Example:
        >>> unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]]))
        array([[0.6, 0.8],
               [0. , 0. ]], dtype=float32)
    """
    rows = block.astype(np.float64)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    scaled: np.ndarray = (rows / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)
    return scaled


def discretize(block: np.ndarray, statistics: Statistics, low: float, high: float) -> np.ndarray:
    """Map activations (images, features), which must be finite, to -1, 0 or +1 by their z-scores.

    A z-score equal to a threshold is ordinary, and so is a feature that does not vary in training.

    Example:
        >>> ordinary = Statistics(np.array([1.0, 1.0, 5.0]), np.array([2.0, 2.0, 0.0]), [])
        >>> discretize(np.array([[0.0, 1.25, 9.0], [0.5, 1.4, 5.0]]), ordinary, low=-0.25, high=0.15)
        array([[-1,  0,  0],
               [ 0,  1,  0]], dtype=int8)
    """
    from fne.features.kernels import ternary_rows  # numba: slow to import

    readable = contiguous(block)
    result = np.empty(block.shape, dtype=np.int8)
    mean, deviation = statistics.mean, statistics.deviation
    run_in_threads(
        lambda first, last: ternary_rows(readable, mean, deviation, low, high, result, first, last),
        len(block),
    )
    return result


def kept_layers(layers: Sequence[str], choice: str | Sequence[str]) -> list[str]:
    """Return the names of the layers that are kept, in the order of the store, or raise `ValueError`.

    Args:
        choice: `all`, the name of a group, `first:N`, `last:N`, or a list of layer names.

    Example:
        >>> kept_layers(["conv1", "conv2", "fc6"], "conv")
        ['conv1', 'conv2']
    """
    if choice == ALL:
        return list(layers)
    if isinstance(choice, str) and (ends := FROM_END.fullmatch(choice)):
        count = int(ends[2])
        if count > len(layers):
            raise ValueError(f"has {len(layers)} layers, and '{choice}' needs {count}")
        return list(layers[:count] if ends[1] == "first" else layers[-count:])
    if isinstance(choice, str):
        kept = [layer for layer in layers if layer.startswith(choice)]
        if not kept:
            raise ValueError(f"has no {choice} layers; it has {', '.join(layers)}")
        return kept
    missing = [layer for layer in choice if layer not in layers]
    if missing:
        raise ValueError(f"has no layer '{missing[0]}'; it has {', '.join(layers)}")
    return [layer for layer in layers if layer in choice]


def fixed(
    activations: Rows, statistics: Statistics, columns: np.ndarray | slice, low: float, high: float
) -> tuple[float, float]:
    """The z-scores `low` and `high`."""
    return low, high


def quantiles(
    activations: Rows, statistics: Statistics, columns: np.ndarray | slice, low: float, high: float
) -> tuple[float, float]:
    """The z-scores below which the fractions `low` and `high` of all z-scores of the training images lie.

    Only kept features that vary count, over the images of the statistics. A threshold is the upper end of its
    bin of 1 / 1024.
    """
    from fne.features.kernels import count_scores  # numba: slow to import

    kept = np.arange(activations.features)[columns]
    kept = kept[statistics.varies[kept]]
    ordinary = statistics.only(kept)
    counts = np.zeros(2 * REACH * STEPS, dtype=np.int64)
    for _, block in activations.blocks(statistics.ids):
        count_scores(contiguous(block[:, kept]), ordinary.mean, ordinary.deviation, REACH, STEPS, counts)
    if not counts.any():
        raise InputError(f"{activations.artifact.path}: no kept feature varies; there are no quantiles")
    found = [_quantile(counts, fraction) for fraction in (low, high)]
    if found[0] >= found[1]:
        raise InputError(
            f"params.yaml: section 'embed': the quantiles {low} and {high} are the same z-score, {found[0]}; "
            "choose fractions further apart"
        )
    return found[0], found[1]


def _quantile(counts: np.ndarray, fraction: float) -> float:
    place = int(np.searchsorted(np.cumsum(counts), fraction * counts.sum()))
    if place in (0, len(counts) - 1):
        raise InputError(
            f"params.yaml: section 'embed': the quantile {fraction} lies beyond {REACH} deviations; "
            "choose a fraction nearer to a half"
        )
    return (place + 1) / STEPS - REACH


def _kept_columns(activations: Rows, choice: str | Sequence[str]) -> tuple[list[Layer], np.ndarray | slice]:
    """Return the layers that are kept and their columns."""
    _refuse_views(activations)
    try:
        names = kept_layers([each.name for each in activations.layers], choice)
    except ValueError as error:
        raise InputError(f"{activations.artifact.path}: {error}; see `embed.layers` in params.yaml") from None
    layers = [each for each in activations.layers if each.name in names]
    if layers == activations.layers:
        return layers, slice(None)
    all_columns = np.arange(activations.features)
    return layers, np.concatenate([all_columns[activations.columns(name)] for name in names])


def kept_features(activations: Rows, choices: Choices, kind: str) -> int:
    """Return how many values an embedding of a kind has."""
    if kind in ONE_LAYER:
        columns = activations.columns(choices.layer)
        return len(range(columns.start, columns.stop))
    return sum(each.features for each in _kept_columns(activations, choices.layers)[0])


def _refuse_views(activations: Rows) -> None:
    if count_views(activations.layers) > 1:
        raise InputError(
            f"{activations.artifact.path}: holds several views of each image, which only embed.kind "
            f"'{OF_VIEWS}' keeps; use -S embed.kind={OF_VIEWS}, or -S ++extract.views=mean"
        )


def _scaled(embedding: Embedding, activations: Rows, statistics: Statistics, choices: Choices) -> Embedding:
    """Return an embedding with the scaling of its rows."""
    return ROWS[choices.rows](embedding, _measure(activations, statistics, choices))


def _int8(embedding: Embedding, activations: Rows, statistics: Statistics, choices: Choices) -> Embedding:
    """Return an embedding in whole numbers, `INT8_STEPS` of them per root mean square of the training images.

    Values beyond nearly 16 times the root mean square are clipped.
    """
    if choices.rows == "rms":
        rms, found = 1.0, embedding.found
    else:
        rms = _measure(activations, statistics, choices)(embedding)
        found = embedding.found | {RMS: rms}

    def transform(block: np.ndarray) -> np.ndarray:
        numbers = np.rint(embedding.transform(block).astype(np.float32) * (INT8_STEPS / rms))
        return _rounded(numbers, INT8_LARGEST, np.int8)

    return replace(embedding, dtype="int8", transform=transform, found=found)


def _measure(activations: Rows, statistics: Statistics, choices: Choices) -> "Measure":
    """Return what finds the root mean square of an embedding's values over the training images."""

    def measure(embedding: Embedding) -> float:
        if choices.rms is not None:
            return choices.rms
        total, count = 0.0, 0
        for _, block in activations.blocks(statistics.ids):
            values = embedding.transform(block)
            total += float(np.square(values, dtype=np.float64).sum())
            count += values.size
        if not total > 0:
            raise InputError(f"{activations.artifact.path}: all values of the embedding are 0; see `embed`")
        return float(np.sqrt(total / count))

    return measure


def _not_measured(embedding: Embedding) -> float:
    raise AssertionError("the lengths of layers need no training images")


def _rounded(values: np.ndarray, largest: float, dtype: DTypeLike) -> np.ndarray:
    rounded: np.ndarray = np.clip(values, -largest, largest).astype(dtype)
    return rounded


def _selected(layers: list[Layer], columns: np.ndarray | slice) -> Embedding:
    """Return the embedding that keeps some columns of the activations."""
    return Embedding(layers, "float32", lambda block: block[:, columns].astype(np.float32, copy=False))


def _check_layers(value: object) -> object:
    """Admit `all`, a group or a list of names, with one message for everything else."""
    if isinstance(value, str):
        if value not in (ALL, *GROUPS) and not FROM_END.fullmatch(value):
            allowed = (ALL, *GROUPS, "first:N", "last:N")
            raise ValueError(f"{not_one_of(value, allowed)} and not a list of layer names")
    elif not isinstance(value, list) or not value or not all(isinstance(name, str) for name in value):
        raise ValueError(f"expected 'all', 'conv', 'fc' or a list of layer names, got {value!r}")
    elif len(set(value)) < len(value):
        raise ValueError(f"a layer is named twice in {value}")
    return value


THRESHOLDS = {"fixed": fixed, "quantiles": quantiles}
# Returns the root mean square of the values of an embedding over the training images.
Measure = Callable[[Embedding], float]
ROWS = {"layers": unit_layers, "none": as_they_are, "rms": unit_rms, "unit": unit}
EMBEDDINGS = {
    "blocks": blocks,
    "fne": fne,
    "layer": layer,
    "plain": plain,
    "raw": raw,
    "raw_float16": raw_float16,
    "raw_int8": raw_int8,
    "sign": sign,
    "zscore": zscore,
    "zscore_int8": zscore_int8,
}
# Kinds that keep a single layer.
ONE_LAYER = ("layer", "plain")
# The kind that keeps several views of an image.
OF_VIEWS = "plain"


class Embed(Section):
    """Which embedding is made from which store; a kind ignores the keys that it does not use."""

    source: str = Field(
        "features/activations",
        min_length=1,
        description="the extracted activations, or a store that `fne import` or `fne join` wrote",
    )
    kind: Annotated[str, one_of(EMBEDDINGS)] = Field(
        "fne",
        description="fne is ternary; blocks scale each layer to length one; layer keeps a single one; plain "
        "keeps a single one with its views",
    )
    rows: Annotated[str, one_of(ROWS)] = Field(
        "none", description="scale each row to length one, each layer of it, or all values by one number"
    )
    layers: Annotated[str | list[str], BeforeValidator(_check_layers)] = Field(
        ALL, description="all, conv, fc, first:N, last:N, or a list of names; not for kinds of one layer"
    )
    thresholds: Annotated[str, one_of(THRESHOLDS)] = Field(
        "fixed", description="for fne: fixed z-scores, or quantiles of the training images' z-scores"
    )
    low: float = Field(-0.25, description="for fne: z-scores below it are -1; a fraction with quantiles")
    high: float = Field(0.15, description="for fne: z-scores above it are +1; a fraction with quantiles")
    layer: str = Field("fc7", min_length=1, description="for layer and plain: its name")

    @model_validator(mode="after")
    def _low_below_high(self) -> Self:
        if not self.low < self.high:
            raise ValueError(f"low must be below high, got low={self.low}, high={self.high}")
        return self

    @model_validator(mode="after")
    def _quantiles_are_fractions(self) -> Self:
        if self.thresholds == "quantiles" and not 0 < self.low < self.high < 1:
            raise ValueError(
                "with thresholds 'quantiles', low and high are fractions between 0 and 1, "
                f"got low={self.low}, high={self.high}"
            )
        return self

    @model_validator(mode="after")
    def _one_layer(self) -> Self:
        if self.kind in ONE_LAYER and self.layers != ALL:
            raise ValueError(
                f"kind '{self.kind}' keeps the one in 'layer'; set layers to 'all', got {self.layers!r}"
            )
        return self

    @model_validator(mode="after")
    def _plain_is_not_scaled(self) -> Self:
        if self.kind == "plain" and self.rows != "none":
            raise ValueError(f"kind 'plain' leaves values as they are; set rows to 'none', got {self.rows!r}")
        return self

    def choices(self) -> Choices:
        """Return the parameters of the kinds."""
        return Choices(self.low, self.high, self.layer, self.layers, self.thresholds, self.rows)


class EmbedText(Embed):
    """The section `embed_text`: which embedding of captions is made from the rows of a text network."""

    source: str = Field(
        "features/text/activations",
        min_length=1,
        description="the rows of a text network, or a store of `fne import --captions FILE`",
    )
    kind: Annotated[str, one_of(EMBEDDINGS)] = Field("blocks", description="as in `embed`; fne is ternary")
    layer: str = Field("block6", min_length=1, description="for layer: its name")
