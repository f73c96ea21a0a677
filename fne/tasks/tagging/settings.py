"""The `train_tagger` and `tag` sections of `params.yaml`."""

from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from fne.core.params import PerPhase, Section, one_of
from fne.core.variants import NoSettings, Variant, blocks, chosen, settings_of
from fne.losses.multilabel import MULTILABEL_LOSSES
from fne.models.decoders.cells import CELLS
from fne.models.decoders.injections import INJECTIONS
from fne.models.describer import CONDITIONS, DescriberShape
from fne.models.recognizer import HINT_SUMS, ROWS
from fne.tasks.tagging.data import CONCEPT_SOURCES
from fne.text.concepts import ORDERS
from fne.training.settings import Count, Rate, TrainingSection

NONE = "none"  # no loss of concepts, or no hints
BIASES = ("frequency", "zero")
# What a phase trains; see `fne.tasks.tagging.task.TaggingTask`.
LEARNS = ("apart", "decoder", "joint", "recognizer")
SCORED = ("test", "val")

Width = Annotated[int, Field(ge=1, le=65536)]


class Hidden(Section):
    """The settings of a recognizer with a hidden layer."""

    dim: Annotated[int, Field(ge=1, le=65536, examples=[512])]


class ForgetBias(Section):
    """The settings of an LSTM."""

    forget_bias: Annotated[float, Field(ge=-100, le=100, examples=[1.0])]


class UserHints(Section):
    """The settings of a tagger that reads the noisy tags of users."""

    count: Annotated[int, Field(ge=1, examples=[1000])]
    hidden: Annotated[int, Field(ge=1, le=65536, examples=[256])]
    sum: Annotated[str, one_of(HINT_SUMS), Field(examples=["logits"])]


RECOGNIZERS: dict[str, Variant[Section]] = {"hidden": Variant(Hidden, Hidden), "linear": Variant(NoSettings)}
CELL_SETTINGS: dict[str, Variant[Section]] = {
    name: Variant(ForgetBias, ForgetBias) if name.startswith("lstm") else Variant(NoSettings)
    for name in CELLS
}
HINTS: dict[str, Variant[Section]] = {NONE: Variant(NoSettings), "user": Variant(UserHints, UserHints)}


class TrainTagger(TrainingSection):
    """A tagger and its training; lists have one value per phase."""

    concepts: Annotated[str, one_of(CONCEPT_SOURCES)]
    concept_sources: blocks(CONCEPT_SOURCES)  # type: ignore[valid-type]
    rows: Annotated[str, one_of(ROWS)]
    recognizer: Annotated[str, one_of(RECOGNIZERS)]
    recognizers: blocks(RECOGNIZERS)  # type: ignore[valid-type]
    concept_loss: Annotated[str, one_of([*MULTILABEL_LOSSES, NONE])]
    concept_weight: Annotated[float, Field(ge=0)]
    concept_bias: Annotated[str, one_of(BIASES)]
    hints: Annotated[str, one_of(HINTS)]
    hint_readers: blocks(HINTS)  # type: ignore[valid-type]
    condition: Annotated[str, one_of(CONDITIONS)]
    inject: Annotated[str, one_of(INJECTIONS)]
    cell: Annotated[str, one_of(CELLS)]
    cells: blocks(CELL_SETTINGS)  # type: ignore[valid-type]
    order: Annotated[str, one_of(ORDERS)]
    units: Width
    word_dim: Width
    dropout: Annotated[float, Field(ge=0, lt=1)]
    output_bias: Annotated[str, one_of(BIASES)]
    batch: Count
    learns: Annotated[list[Annotated[str, one_of(LEARNS)]], PerPhase]
    recognizer_rate: Annotated[list[Rate], PerPhase]

    @model_validator(mode="after")
    def _phases_fit(self) -> Self:
        self.phase_values()
        return self

    @model_validator(mode="after")
    def _parts_exist(self) -> Self:
        if self.condition == "hidden" and self.recognizer == "linear":
            raise ValueError("condition 'hidden' needs recognizer 'hidden': a linear one has no hidden layer")
        if self.hints != NONE and not self.has_recognizer:
            raise ValueError(
                "hints add to concepts, which condition 'embedding' without a concept_loss lacks"
            )
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
        if self.has_decoder and self.learns[-1] == "recognizer":
            raise ValueError("the last phase learns only the recognizer; train the decoder last, or never")
        return self

    @property
    def has_recognizer(self) -> bool:
        """Whether the tagger predicts concepts."""
        return self.condition != "embedding" or self.concept_loss != NONE

    @property
    def has_decoder(self) -> bool:
        """Whether the tagger writes tags one after the other: whether any phase trains it to."""
        return any(learns != "recognizer" for learns in self.learns)

    def phase_keys(self) -> dict[str, list[Any]]:
        """Return the values of every key that may have one per phase."""
        own: dict[str, list[Any]] = {"learns": self.learns, "recognizer_rate": self.recognizer_rate}
        return own | super().phase_keys()

    def titles(self) -> list[str]:
        """Return what each phase learns, for the progress bar."""
        return [values["learns"] for values in self.phase_values()]

    @property
    def user_hints(self) -> UserHints | None:
        """The settings of the hints, if they are read."""
        found = settings_of(self.hints, self.hint_readers)
        return found if isinstance(found, UserHints) else None

    @property
    def forget_bias(self) -> float:
        """What the bias of the forget gate starts at, if the cell has one."""
        found = settings_of(self.cell, self.cells)
        return found.forget_bias if isinstance(found, ForgetBias) else 0.0

    def shape(self, features: int, concepts: int, hints: int) -> DescriberShape:
        """Return the shape of the tagger for rows, concepts and hints of these numbers."""
        hidden, reader = settings_of(self.recognizer, self.recognizers), self.user_hints
        return DescriberShape(
            features=features,
            rows=self.rows,
            concepts=concepts if self.has_recognizer else 0,
            hidden=hidden.dim if isinstance(hidden, Hidden) else 0,
            condition=self.condition,
            outputs=concepts + 1 if self.has_decoder else 0,  # and END
            word_dim=self.word_dim,
            units=self.units,
            cell=self.cell,
            inject=self.inject,
            hints=hints if reader else 0,
            hint_hidden=reader.hidden if reader else 0,
            hint_sum=reader.sum if reader else "logits",
        )

    def applied(self) -> dict[str, Any]:
        """Return the settings that apply: of the families' blocks, only those of the chosen variants."""
        return super().applied() | {
            "concept_sources": chosen([self.concepts], self.concept_sources),
            "recognizers": chosen([self.recognizer], self.recognizers),
            "hint_readers": chosen([self.hints], self.hint_readers),
            "cells": chosen([self.cell], self.cells),
        }


class Tag(Section):
    """Which images are tagged and scored, and the answers that stand beside the tagger's own."""

    split: Annotated[str, one_of(SCORED)]
    top_k: Count
    threshold: Annotated[float, Field(gt=0, lt=1)]
    examples: Annotated[int, Field(ge=0)]
    seed: Annotated[int, Field(ge=0, lt=2**32)]
