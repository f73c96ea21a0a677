"""The `extract` section of `params.yaml`."""

from typing import Annotated

from pydantic import Field

from fne.activations.backbones import BACKBONES
from fne.activations.crops import CROPS
from fne.core.params import Section, one_of


class Extract(Section):
    """Which activations are computed; speed settings are in `runtime`."""

    backbone: Annotated[str, one_of(BACKBONES)]
    weights: Annotated[str, Field(min_length=1)]
    crops: Annotated[str, one_of(CROPS)]
    shards: Annotated[int, Field(ge=1, le=9999)]
