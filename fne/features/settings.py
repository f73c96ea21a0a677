"""The `embed` section of `params.yaml`."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from fne.core.params import Section, one_of
from fne.features.embeddings import EMBEDDINGS


class Embed(Section):
    """Which embedding is made; `low` and `high` serve `fne`, `layer` serves `layer`."""

    kind: Annotated[str, one_of(EMBEDDINGS)]
    low: float
    high: float
    layer: Annotated[str, Field(min_length=1)]

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.low < self.high:
            raise ValueError(f"low must be below high, got low={self.low}, high={self.high}")
        return self
