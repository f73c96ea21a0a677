"""The `train_captioner` and `caption` sections of `params.yaml`."""

from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from fne.core.params import PerPhase, Section, one_of
from fne.core.variants import Variant, blocks, chosen, settings_of
from fne.losses.multilabel import MULTILABEL_LOSSES
from fne.models.decoders.cells import CELLS
from fne.models.decoders.injections import INJECTIONS
from fne.models.describer import CONDITIONS, DescriberShape
from fne.models.recognizer import ROWS
from fne.tasks.captioning.data import CONCEPT_SOURCES, DRAWS
from fne.text.caption_vocabulary import WORDS
from fne.training.settings import Count, Rate, TrainingSection

NONE = "none"  # no loss of concepts
BIASES = ("frequency", "zero")
# What a phase trains; see `CaptioningTask`.
LEARNS = ("apart", "decoder", "joint", "recognizer")
# The validation score that chooses the epoch, and its name among the scores.
SELECT = {"bleu_4": "BLEU-4", "cider": "CIDEr-D", "likelihood": "word_probability"}
SCORED = ("test", "val")
CAPTIONED = ("all", "split")
METEOR = ("always", "auto", "never")


class Hidden(Section):
    """The settings of a recognizer with a hidden layer."""

    dim: Annotated[int, Field(ge=1, le=65536, examples=[512])]


class ForgetBias(Section):
    """The settings of an LSTM."""

    forget_bias: Annotated[float, Field(ge=-100, le=100, examples=[1.0])]


RECOGNIZERS = {"hidden": Variant(Hidden, Hidden), "linear": Variant(Section)}
CELL_SETTINGS = {
    name: Variant(ForgetBias, ForgetBias) if name.startswith("lstm") else Variant(Section) for name in CELLS
}


class TrainCaptioner(TrainingSection):
    """A captioner and its training; lists have one value per phase."""

    concepts: Annotated[str, one_of(CONCEPT_SOURCES)]
    concept_sources: blocks(CONCEPT_SOURCES)  # type: ignore[valid-type]
    words: Annotated[str, one_of(WORDS)]
    min_count: Count
    max_words: Count
    max_length: Annotated[int, Field(ge=1, le=1000)]
    rows: Annotated[str, one_of(ROWS)]
    recognizer: Annotated[str, one_of(RECOGNIZERS)]
    recognizers: blocks(RECOGNIZERS)  # type: ignore[valid-type]
    condition: Annotated[str, one_of(CONDITIONS)]
    inject: Annotated[str, one_of(INJECTIONS)]
    cell: Annotated[str, one_of(CELLS)]
    cells: blocks(CELL_SETTINGS)  # type: ignore[valid-type]
    units: Annotated[int, Field(ge=1, le=65536)]
    word_dim: Annotated[int, Field(ge=1, le=65536)]
    dropout: Annotated[float, Field(ge=0, lt=1)]
    concept_loss: Annotated[str, one_of([*MULTILABEL_LOSSES, NONE])]
    concept_weight: Annotated[float, Field(ge=0)]
    concept_bias: Annotated[str, one_of(BIASES)]
    output_bias: Annotated[str, one_of(BIASES)]
    captions: Annotated[str, one_of(DRAWS)]
    batch: Count
    select: Annotated[str, one_of(SELECT)]
    validation_images: Annotated[int, Field(ge=0)]
    validation_beam: Count
    learns: Annotated[list[Annotated[str, one_of(LEARNS)]], PerPhase]
    recognizer_rate: Annotated[list[Rate], PerPhase]

    @model_validator(mode="after")
    def _phases_fit(self) -> Self:
        self.phase_values()
        return self

    @model_validator(mode="after")
    def _the_condition_exists(self) -> Self:
        if self.condition == "hidden" and self.recognizer == "linear":
            raise ValueError("condition 'hidden' needs recognizer 'hidden': a linear one has no hidden layer")
        return self

    @model_validator(mode="after")
    def _phases_can_be_learned(self) -> Self:
        for learns in dict.fromkeys(self.learns):
            if learns in ("apart", "recognizer") and self.concept_loss == NONE:
                raise ValueError(f"learns '{learns}' needs a concept_loss, which is 'none'")
            if learns == "apart" and self.condition != "concepts":
                raise ValueError(
                    f"learns 'apart' trains the decoder from true concepts, but condition is "
                    f"'{self.condition}'; use 'recognizer' and then 'joint'"
                )
            if learns == "recognizer" and self.condition == "embedding":
                raise ValueError(
                    "learns 'recognizer' has no effect on captions, because condition is 'embedding'"
                )
        if self.learns[-1] == "recognizer":
            raise ValueError("the last phase learns only the recognizer; the decoder must be trained, too")
        return self

    @property
    def has_recognizer(self) -> bool:
        """Whether the captioner predicts concepts."""
        return self.condition != "embedding" or self.concept_loss != NONE

    def phase_keys(self) -> dict[str, list[Any]]:
        """Return the values of every key that may have one per phase."""
        own: dict[str, list[Any]] = {"learns": self.learns, "recognizer_rate": self.recognizer_rate}
        return own | super().phase_keys()

    def titles(self) -> list[str]:
        """Return what each phase learns, for the progress bar."""
        return [values["learns"] for values in self.phase_values()]

    @property
    def forget_bias(self) -> float:
        """What the bias of the forget gate of an LSTM starts at."""
        cell = settings_of(self.cell, self.cells)
        return cell.forget_bias if isinstance(cell, ForgetBias) else 0.0

    def shape(self, features: int, concepts: int, outputs: int) -> DescriberShape:
        """Return the shape of the captioner for embeddings, concepts and words of these numbers."""
        hidden = settings_of(self.recognizer, self.recognizers)
        return DescriberShape(
            features=features,
            rows=self.rows,
            concepts=concepts if self.has_recognizer else 0,
            hidden=hidden.dim if isinstance(hidden, Hidden) else 0,
            condition=self.condition,
            outputs=outputs,
            word_dim=self.word_dim,
            units=self.units,
            cell=self.cell,
            inject=self.inject,
        )

    def applied(self) -> dict[str, Any]:
        """Return the settings that apply: of the families' blocks, only those of the chosen variants."""
        return super().applied() | {
            "concept_sources": chosen([self.concepts], self.concept_sources),
            "recognizers": chosen([self.recognizer], self.recognizers),
            "cells": chosen([self.cell], self.cells),
        }


class Caption(Section):
    """How captions are written, and which images are scored."""

    split: Annotated[str, one_of(SCORED)]
    images: Annotated[str, one_of(CAPTIONED)]
    beam: Annotated[int, Field(ge=1, le=1000)]
    length_power: Annotated[float, Field(ge=0, le=10)]
    max_length: Annotated[int, Field(ge=1, le=1000)]
    concepts: Annotated[int, Field(ge=0, le=1000)]
    meteor: Annotated[str, one_of(METEOR)]
    neighbors: Count
    examples: Annotated[int, Field(ge=0)]
    seed: Annotated[int, Field(ge=0, lt=2**32)]
