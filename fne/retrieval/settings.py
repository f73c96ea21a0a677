"""The `evaluate` section of `params.yaml`."""

from typing import Annotated, Literal

from pydantic import Field

from fne.core.params import Section


class Evaluate(Section):
    """Which images are scored, and how many of the best are kept for each query."""

    split: Literal["test", "val"]
    top: Annotated[int, Field(ge=1)]
