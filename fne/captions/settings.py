"""The `tokenize` section of `params.yaml`."""

from typing import Annotated, Literal

from pydantic import Field

from fne.core.params import Section


class Tokenize(Section):
    """How captions become words, and which words get a number."""

    lowercase: bool
    min_count: Annotated[int, Field(ge=1)]
    end_of_sentence: bool
    # Never the test captions: a vocabulary that knows them leaks.
    vocabulary: Annotated[list[Literal["train", "val"]], Field(min_length=1)]
