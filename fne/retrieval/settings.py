"""The `evaluate` section of `params.yaml`."""

from typing import Annotated

from pydantic import AfterValidator, Field

from fne.core.params import Section, one_of
from fne.retrieval.protocols import PROTOCOLS, SCORED


def _growing(recalls: list[int]) -> list[int]:
    if recalls != sorted(set(recalls)):
        raise ValueError(f"must grow from one to the next, got {recalls}")
    return recalls


class Evaluate(Section):
    """Which images are scored and how, and how many of the best are kept for each query."""

    split: Annotated[str, one_of(SCORED)]
    protocol: Annotated[str, one_of(PROTOCOLS)]
    recalls: Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=1), AfterValidator(_growing)]
    # A fold has at least a thousand captions, so that all folds keep equally many.
    top: Annotated[int, Field(ge=1, le=1000)]
