"""The sections about pages: `report`, `captions_page` and `tags_page`."""

from pydantic import Field

from fne.core.settings import Section


class Report(Section):
    """The gallery shows `examples` images and as many sentences."""

    examples: int = Field(12, ge=0, description="images and sentences in the gallery")
    seed: int = Field(0, ge=0, description="random seed of the choice of examples")
