"""The `train` section of `params.yaml`."""

from typing import Annotated, Self

from pydantic import BeforeValidator, Field, model_validator

from fne.core.params import Section, one_of
from fne.matching.image_heads import IMAGE_HEADS
from fne.matching.losses import LOSSES
from fne.matching.model import Shape
from fne.matching.phases import Phase, unfold
from fne.matching.text_encoders import TEXT_ENCODERS
from fne.ranking.similarities import SIMILARITIES

Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
# A single value counts as a list of one, so that a fault is told once and not for either reading.
OneOrMore = BeforeValidator(lambda value: value if isinstance(value, list) else [value])


class Train(Section):
    """The model and its training. Keys from `loss` to `patience` may be lists, one value per phase."""

    seed: Annotated[int, Field(ge=0, lt=2**32)]
    image_head: Annotated[str, one_of(IMAGE_HEADS)]
    text_encoder: Annotated[str, one_of(TEXT_ENCODERS)]
    similarity: Annotated[str, one_of(SIMILARITIES)]
    absolute: bool
    embed_dim: Annotated[int, Field(ge=1, le=65536)]
    word_dim: Annotated[int, Field(ge=1, le=65536)]
    # With a batch of one there is nothing to contrast with, and every loss is 0.
    batch: Annotated[int, Field(ge=2)]
    clip: Positive
    loss: Annotated[list[Annotated[str, one_of(LOSSES)]], OneOrMore]
    margin: Annotated[list[Positive], OneOrMore]
    learning_rate: Annotated[list[Annotated[float, Field(gt=0, lt=1000)]], OneOrMore]
    epochs: Annotated[list[Count], OneOrMore]
    patience: Annotated[list[Count], OneOrMore]

    @model_validator(mode="after")
    def _phases_fit(self) -> Self:
        self.phases()
        return self

    def shape(self, features: int, vocabulary_size: int) -> Shape:
        """Return the shape of the model for embeddings and a vocabulary of these sizes."""
        return Shape(
            self.image_head,
            self.text_encoder,
            self.similarity,
            self.absolute,
            features,
            vocabulary_size,
            self.word_dim,
            self.embed_dim,
        )

    def phases(self) -> list[Phase]:
        """Return the phases of training."""
        keys = ("loss", "margin", "learning_rate", "epochs", "patience")
        return unfold({key: getattr(self, key) for key in keys})
