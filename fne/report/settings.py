"""The `report` section of `params.yaml`."""

from typing import Annotated

from pydantic import Field

from fne.core.params import Section

Count = Annotated[int, Field(ge=0)]


class Report(Section):
    """What the gallery of the page shows: this many images, and as many sentences."""

    examples: Count
    seed: Count
