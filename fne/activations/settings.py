"""The `extract` section of `params.yaml`."""

from typing import Annotated

import torch
from pydantic import Field

from fne.activations.backbones import BACKBONES
from fne.activations.crops import CROPS
from fne.activations.network import ACTIVATIONS
from fne.activations.resizing import RESIZES
from fne.core.params import Section, one_of

PRECISIONS = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


class Choices(Section):
    """The keys that decide the values of a row."""

    backbone: Annotated[str, one_of(BACKBONES)]
    activations: Annotated[str, one_of(ACTIVATIONS)]
    resize: Annotated[str, one_of(RESIZES)]
    crops: Annotated[str, one_of(CROPS)]
    precision: Annotated[str, one_of(PRECISIONS)]


class Extract(Choices):
    """Which activations are computed and how they are kept; speed settings are in `runtime`."""

    weights: Annotated[str, Field(min_length=1)]
    shards: Annotated[int, Field(ge=1, le=9999)]
