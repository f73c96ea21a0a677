"""The sections of `params.yaml` that train taggers and captioners, and those that write with them.

What a phase of training learns:

- `concept_head`: the concept head, from the true concepts.
- `separately`: the concept head from the true concepts, and the decoder with the TRUE concepts as its
  condition. No gradient of one reaches the other.
- `decoder`: the decoder, with the predicted concepts. The concept head does not change.
- `jointly`: both, with the sum of both losses. Gradients of the decoder reach the concept head.
"""

from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator

from fne.core.params import PerPhase, Section, one_of
from fne.core.variants import NoSettings, Variant, blocks, chosen, settings_of
from fne.describing.concept_head import ROWS, USER_TAG_SUMS
from fne.describing.concepts import CONCEPT_SOURCES, ORDERS
from fne.describing.data import DRAWS
from fne.describing.decoder import INJECTIONS
from fne.describing.losses import MULTILABEL_LOSSES
from fne.describing.model import CONDITIONS, DescribingShape
from fne.describing.model_file import CAPTIONER, TAGGER
from fne.describing.recurrent_cells import CELLS
from fne.text.caption_vocabulary import WORDS
from fne.training.settings import Count, Rate, TrainingSection

NONE = "none"  # no loss of the concepts, and no user tags
WRITTEN = ("all", "test", "val")  # the images that get tags or captions: of the catalog, or of a split
# The validation score that chooses the epoch of a captioner, and its name among the scores.
SELECT = {"bleu_4": "BLEU-4", "cider": "CIDEr-D", "likelihood": "word_probability"}

Width = Annotated[int, Field(ge=1, le=65536)]
Beam = Annotated[int, Field(ge=1, le=1000)]
LengthPower = Annotated[float, Field(ge=0, le=10)]
MaxLength = Annotated[int, Field(ge=1, le=1000)]


class Hidden(Section):
    """The settings of a concept head with a hidden layer."""

    dim: Annotated[int, Field(ge=1, le=65536, examples=[512])]


class ForgetBias(Section):
    """The settings of an LSTM."""

    forget_bias: Annotated[float, Field(ge=-100, le=100, examples=[1.0])]


class UserTags(Section):
    """The settings of a tagger that reads the noisy tags of users."""

    count: Annotated[int, Field(ge=1, examples=[1000])]
    hidden: Annotated[int, Field(ge=1, le=65536, examples=[256])]
    sum: Annotated[str, one_of(USER_TAG_SUMS), Field(examples=["logits"])]


CONCEPT_HEADS: dict[str, Variant[Section]] = {
    "hidden": Variant(Hidden, Hidden),
    "linear": Variant(NoSettings),
}
CELL_SETTINGS: dict[str, Variant[Section]] = {
    name: Variant(ForgetBias, ForgetBias) if name.startswith("lstm") else Variant(NoSettings)
    for name in CELLS
}
USER_TAGS: dict[str, Variant[Section]] = {NONE: Variant(NoSettings), "user": Variant(UserTags, UserTags)}


class DescribingSection(TrainingSection):
    """What taggers and captioners have in common; lists have one value per phase."""

    kind: ClassVar[str]

    concepts: Annotated[str, one_of(CONCEPT_SOURCES)]
    concept_sources: blocks(CONCEPT_SOURCES)  # type: ignore[valid-type]
    rows: Annotated[str, one_of(ROWS)]
    concept_head: Annotated[str, one_of(CONCEPT_HEADS)]
    concept_heads: blocks(CONCEPT_HEADS)  # type: ignore[valid-type]
    concept_loss: Annotated[str, one_of([*MULTILABEL_LOSSES, NONE])]
    concept_weight: Annotated[float, Field(ge=0)]
    concept_bias: Annotated[str, one_of(("frequency", "zero"))]
    condition: Annotated[str, one_of(CONDITIONS)]
    inject: Annotated[str, one_of(INJECTIONS)]
    cell: Annotated[str, one_of(CELLS)]
    cells: blocks(CELL_SETTINGS)  # type: ignore[valid-type]
    units: Width
    word_dim: Width
    dropout: Annotated[float, Field(ge=0, lt=1)]
    output_bias: Annotated[str, one_of(("frequency", "zero"))]
    batch: Count
    learns: Annotated[
        list[Annotated[str, one_of(("separately", "decoder", "jointly", "concept_head"))]], PerPhase
    ]
    concept_head_rate: Annotated[list[Rate], PerPhase]

    @model_validator(mode="after")
    def _phases_fit(self) -> Self:
        self.phase_values()
        return self

    @model_validator(mode="after")
    def _the_condition_exists(self) -> Self:
        if self.condition == "hidden" and self.concept_head == "linear":
            raise ValueError(
                "condition 'hidden' needs concept head 'hidden': a linear one has no hidden layer"
            )
        return self

    @model_validator(mode="after")
    def _phases_have_what_they_learn(self) -> Self:
        for learns in dict.fromkeys(self.learns):
            if learns in ("separately", "concept_head") and self.concept_loss == NONE:
                raise ValueError(f"learns '{learns}' needs a concept_loss, which is 'none'")
            if learns == "separately" and self.condition != "concepts":
                raise ValueError(
                    f"learns 'separately' trains the decoder from true concepts, but condition is "
                    f"'{self.condition}'; use 'concept_head' and then 'jointly'"
                )
        return self

    @property
    def has_concept_head(self) -> bool:
        """Whether concepts are predicted."""
        return self.condition != "embedding" or self.concept_loss != NONE

    @property
    def has_decoder(self) -> bool:
        """Whether sequences are written: whether any phase trains the decoder."""
        return any(learns != "concept_head" for learns in self.learns)

    @property
    def user_tag_settings(self) -> UserTags | None:
        """The settings of the user tags, if they are read."""
        return None

    @property
    def forget_bias(self) -> float:
        """The first bias of the forget gate, if the cell has one."""
        found = settings_of(self.cell, self.cells)
        return found.forget_bias if isinstance(found, ForgetBias) else 0.0

    def shape(self, features: int, concepts: int, outputs: int, user_tags: int = 0) -> DescribingShape:
        """Return the shape of the model for rows, concepts, outputs and user tags of these numbers."""
        concept_head, reader = settings_of(self.concept_head, self.concept_heads), self.user_tag_settings
        return DescribingShape(
            features=features,
            rows=self.rows,
            concepts=concepts if self.has_concept_head else 0,
            hidden=concept_head.dim if isinstance(concept_head, Hidden) else 0,
            condition=self.condition,
            outputs=outputs if self.has_decoder else 0,
            word_dim=self.word_dim,
            units=self.units,
            cell=self.cell,
            inject=self.inject,
            user_tags=user_tags if reader else 0,
            user_tag_hidden=reader.hidden if reader else 0,
            user_tag_sum=reader.sum if reader else "logits",
        )

    def phase_keys(self) -> dict[str, list[Any]]:
        """Return the values of every key that may have one per phase."""
        own: dict[str, list[Any]] = {"learns": self.learns, "concept_head_rate": self.concept_head_rate}
        return own | super().phase_keys()

    def titles(self) -> list[str]:
        """Return what each phase learns, for the progress bar."""
        return [values["learns"] for values in self.phase_values()]

    def applied(self) -> dict[str, Any]:
        """Return the settings that apply: of the families' blocks, only those of the chosen variants."""
        return super().applied() | {
            "concept_sources": chosen([self.concepts], self.concept_sources),
            "concept_heads": chosen([self.concept_head], self.concept_heads),
            "cells": chosen([self.cell], self.cells),
        }


class TrainTagger(DescribingSection):
    """A tagger and its training: the tags of an image are its concepts, in an order."""

    kind: ClassVar[str] = TAGGER

    user_tags: Annotated[str, one_of(USER_TAGS)]
    user_tag_readers: blocks(USER_TAGS)  # type: ignore[valid-type]
    order: Annotated[str, one_of(ORDERS)]

    @model_validator(mode="after")
    def _user_tags_have_concepts(self) -> Self:
        if self.user_tags != NONE and not self.has_concept_head:
            raise ValueError(
                "user tags add to concepts, which condition 'embedding' without a concept_loss lacks"
            )
        return self

    @model_validator(mode="after")
    def _the_decoder_is_trained(self) -> Self:
        if self.has_decoder and self.learns[-1] == "concept_head":
            raise ValueError("the last phase learns only the concept head; train the decoder last, or never")
        return self

    @property
    def user_tag_settings(self) -> UserTags | None:
        """The settings of the user tags, if they are read."""
        found = settings_of(self.user_tags, self.user_tag_readers)
        return found if isinstance(found, UserTags) else None

    def applied(self) -> dict[str, Any]:
        """Return the settings that apply: of the families' blocks, only those of the chosen variants."""
        return super().applied() | {"user_tag_readers": chosen([self.user_tags], self.user_tag_readers)}


class TrainCaptioner(DescribingSection):
    """A captioner and its training: it writes the words of captions."""

    kind: ClassVar[str] = CAPTIONER

    words: Annotated[str, one_of(WORDS)]
    min_count: Count
    max_words: Count
    max_length: MaxLength
    captions: Annotated[str, one_of(DRAWS)]
    select: Annotated[str, one_of(SELECT)]
    validation_images: Annotated[int, Field(ge=0)]
    validation_beam: Count

    @model_validator(mode="after")
    def _the_decoder_is_trained(self) -> Self:
        if self.condition == "embedding" and "concept_head" in self.learns:
            raise ValueError(
                "learns 'concept_head' has no effect on captions, because condition is 'embedding'"
            )
        if self.learns[-1] == "concept_head":
            raise ValueError("the last phase learns only the concept head; the decoder must be trained, too")
        return self


class WriteTags(Section):
    """Which images are tagged, and how many of their likeliest concepts are an answer of fixed length."""

    images: Annotated[str, one_of(WRITTEN)]
    top_k: Count


class Writing(Section):
    """How sentences are written: the number of hypotheses, the most words, the correction for the length."""

    beam: Beam
    max_length: MaxLength
    length_power: LengthPower


class WriteCaptions(Writing):
    """Which images get captions, how these are written, and how many of the likeliest concepts are kept."""

    images: Annotated[str, one_of(WRITTEN)]
    concepts: Annotated[int, Field(ge=0, le=1000)]
