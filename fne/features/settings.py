"""The `embed` section of `params.yaml`."""

from typing import Annotated, Self

from pydantic import BeforeValidator, Field, model_validator

from fne.core.params import Section, not_one_of, one_of
from fne.features.embeddings import EMBEDDINGS
from fne.features.layers import ALL, GROUPS
from fne.features.thresholds import THRESHOLDS


def _check_layers(value: object) -> object:
    """Admit `all`, a group or a list of names, with one message for all that it may not be."""
    if isinstance(value, str):
        if value not in (ALL, *GROUPS):
            raise ValueError(f"{not_one_of(value, (ALL, *GROUPS))} and not a list of layer names")
    elif not isinstance(value, list) or not value or not all(isinstance(name, str) for name in value):
        raise ValueError(f"expected 'all', 'conv', 'fc' or a list of layer names, got {value!r}")
    elif len(set(value)) < len(value):
        raise ValueError(f"a layer is named twice in {value}")
    return value


class Embed(Section):
    """Which embedding is made of which store; a kind ignores the keys that it does not use."""

    source: Annotated[str, Field(min_length=1)]
    kind: Annotated[str, one_of(EMBEDDINGS)]
    layers: Annotated[str | list[str], BeforeValidator(_check_layers)]
    thresholds: Annotated[str, one_of(THRESHOLDS)]
    low: float
    high: float
    layer: Annotated[str, Field(min_length=1)]

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.low < self.high:
            raise ValueError(f"low must be below high, got low={self.low}, high={self.high}")
        return self

    @model_validator(mode="after")
    def _shares(self) -> Self:
        if self.thresholds == "quantiles" and not 0 < self.low < self.high < 1:
            raise ValueError(
                "with thresholds 'quantiles', low and high are shares between 0 and 1, "
                f"got low={self.low}, high={self.high}"
            )
        return self

    @model_validator(mode="after")
    def _one_layer(self) -> Self:
        if self.kind == "layer" and self.layers != ALL:
            raise ValueError(
                f"kind 'layer' keeps the one in 'layer'; set layers to 'all', got {self.layers!r}"
            )
        return self
