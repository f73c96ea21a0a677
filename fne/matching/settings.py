"""The `train` section of `params.yaml`."""

from typing import Annotated, Self

import torch
from pydantic import BeforeValidator, Field, model_validator

from fne.core.errors import InputError
from fne.core.params import Section, one_of
from fne.matching.clipping import CLIPS
from fne.matching.image_heads import IMAGE_HEADS
from fne.matching.losses import HARDEST, LOSSES
from fne.matching.model import PRECISIONS, Shape
from fne.matching.optimizers import OPTIMIZERS
from fne.matching.pairs import DRAWS
from fne.matching.phases import Phase, unfold
from fne.matching.run import Schedule
from fne.matching.text_encoders import BIDIRECTIONAL, TEXT_ENCODERS
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
    captions: Annotated[str, one_of(DRAWS)]
    optimizer: Annotated[str, one_of(OPTIMIZERS)]
    clip: Positive
    clip_by: Annotated[str, one_of(CLIPS)]
    precision: Annotated[str, one_of(PRECISIONS)]
    validate_every: Annotated[int, Field(ge=0)]
    hardest: Annotated[str, one_of(HARDEST)]
    top_k: Count
    loss: Annotated[list[Annotated[str, one_of(LOSSES)]], OneOrMore]
    margin: Annotated[list[Positive], OneOrMore]
    learning_rate: Annotated[list[Annotated[float, Field(gt=0, lt=1000)]], OneOrMore]
    epochs: Annotated[list[Count], OneOrMore]
    patience: Annotated[list[Count], OneOrMore]

    @model_validator(mode="after")
    def _directions_share_evenly(self) -> Self:
        if self.text_encoder in BIDIRECTIONAL and self.embed_dim % 2:
            raise ValueError(f"embed_dim must be even for {self.text_encoder!r}, got {self.embed_dim}")
        return self

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

    def schedule(self) -> Schedule:
        """Return how to train."""
        same = ("seed", "batch", "captions", "optimizer", "clip", "clip_by", "precision")
        how = {key: getattr(self, key) for key in (*same, "validate_every", "hardest", "top_k")}
        return Schedule(self.phases(), **how)

    def phases(self) -> list[Phase]:
        """Return the phases of training."""
        keys = ("loss", "margin", "learning_rate", "epochs", "patience")
        return unfold({key: getattr(self, key) for key in keys})


def require_precision(precision: str, device: torch.device) -> None:
    """Refuse half precision on a CPU, where it is slower and less exact."""
    if precision != "float32" and device.type == "cpu":
        raise InputError(
            f"params.yaml: train.precision is '{precision}', which needs a GPU; use 'float32' here"
        )
