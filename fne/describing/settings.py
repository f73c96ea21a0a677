"""The sections of `params.yaml` about tags and captions: `train_tagger`, `tag`, `train_captioner`, `caption`.

What a phase of training learns:

- `recognizer`: the recognizer, from the true concepts.
- `apart`: the recognizer from the true concepts, and the decoder with the TRUE concepts as its
  condition. No gradient of one reaches the other.
- `decoder`: the decoder, with the predicted concepts. The recognizer does not change.
- `joint`: both, with the sum of both losses. Gradients of the decoder reach the recognizer.
"""

from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator

from fne.core.params import PerPhase, Section, one_of
from fne.core.variants import NoSettings, Variant, blocks, chosen, settings_of
from fne.describing.concept_head import HINT_SUMS, ROWS
from fne.describing.concepts import CONCEPT_SOURCES, ORDERS
from fne.describing.data import DRAWS
from fne.describing.decoder import INJECTIONS
from fne.describing.losses import MULTILABEL_LOSSES
from fne.describing.model import CONDITIONS, DescriberShape
from fne.describing.model_file import CAPTIONER, TAGGER
from fne.describing.recurrent_cells import CELLS
from fne.text.caption_vocabulary import WORDS
from fne.training.settings import Count, Rate, TrainingSection

NONE = "none"  # no loss of the concepts, and no hints
SCORED = ("test", "val")  # the splits that can be scored
# The validation score that chooses the epoch of a captioner, and its name among the scores.
SELECT = {"bleu_4": "BLEU-4", "cider": "CIDEr-D", "likelihood": "word_probability"}

Width = Annotated[int, Field(ge=1, le=65536)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
Beam = Annotated[int, Field(ge=1, le=1000)]
LengthPower = Annotated[float, Field(ge=0, le=10)]
MaxLength = Annotated[int, Field(ge=1, le=1000)]


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


class DescriberSection(TrainingSection):
    """What taggers and captioners have in common; lists have one value per phase."""

    kind: ClassVar[str]

    concepts: Annotated[str, one_of(CONCEPT_SOURCES)]
    concept_sources: blocks(CONCEPT_SOURCES)  # type: ignore[valid-type]
    rows: Annotated[str, one_of(ROWS)]
    recognizer: Annotated[str, one_of(RECOGNIZERS)]
    recognizers: blocks(RECOGNIZERS)  # type: ignore[valid-type]
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
    learns: Annotated[list[Annotated[str, one_of(("apart", "decoder", "joint", "recognizer"))]], PerPhase]
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
    def _phases_have_what_they_learn(self) -> Self:
        for learns in dict.fromkeys(self.learns):
            if learns in ("apart", "recognizer") and self.concept_loss == NONE:
                raise ValueError(f"learns '{learns}' needs a concept_loss, which is 'none'")
            if learns == "apart" and self.condition != "concepts":
                raise ValueError(
                    f"learns 'apart' trains the decoder from true concepts, but condition is "
                    f"'{self.condition}'; use 'recognizer' and then 'joint'"
                )
        return self

    @property
    def has_recognizer(self) -> bool:
        """Whether concepts are predicted."""
        return self.condition != "embedding" or self.concept_loss != NONE

    @property
    def has_decoder(self) -> bool:
        """Whether sequences are written: whether any phase trains the decoder."""
        return any(learns != "recognizer" for learns in self.learns)

    @property
    def user_hints(self) -> UserHints | None:
        """The settings of the hints, if they are read."""
        return None

    @property
    def forget_bias(self) -> float:
        """The first bias of the forget gate, if the cell has one."""
        found = settings_of(self.cell, self.cells)
        return found.forget_bias if isinstance(found, ForgetBias) else 0.0

    def shape(self, features: int, concepts: int, outputs: int, hints: int = 0) -> DescriberShape:
        """Return the shape of the model for rows, concepts, outputs and hints of these numbers."""
        recognizer, reader = settings_of(self.recognizer, self.recognizers), self.user_hints
        return DescriberShape(
            features=features,
            rows=self.rows,
            concepts=concepts if self.has_recognizer else 0,
            hidden=recognizer.dim if isinstance(recognizer, Hidden) else 0,
            condition=self.condition,
            outputs=outputs if self.has_decoder else 0,
            word_dim=self.word_dim,
            units=self.units,
            cell=self.cell,
            inject=self.inject,
            hints=hints if reader else 0,
            hint_hidden=reader.hidden if reader else 0,
            hint_sum=reader.sum if reader else "logits",
        )

    def phase_keys(self) -> dict[str, list[Any]]:
        """Return the values of every key that may have one per phase."""
        own: dict[str, list[Any]] = {"learns": self.learns, "recognizer_rate": self.recognizer_rate}
        return own | super().phase_keys()

    def titles(self) -> list[str]:
        """Return what each phase learns, for the progress bar."""
        return [values["learns"] for values in self.phase_values()]

    def applied(self) -> dict[str, Any]:
        """Return the settings that apply: of the families' blocks, only those of the chosen variants."""
        return super().applied() | {
            "concept_sources": chosen([self.concepts], self.concept_sources),
            "recognizers": chosen([self.recognizer], self.recognizers),
            "cells": chosen([self.cell], self.cells),
        }


class TrainTagger(DescriberSection):
    """A tagger and its training: the tags of an image are its concepts, in an order."""

    kind: ClassVar[str] = TAGGER

    hints: Annotated[str, one_of(HINTS)]
    hint_readers: blocks(HINTS)  # type: ignore[valid-type]
    order: Annotated[str, one_of(ORDERS)]

    @model_validator(mode="after")
    def _hints_have_concepts(self) -> Self:
        if self.hints != NONE and not self.has_recognizer:
            raise ValueError(
                "hints add to concepts, which condition 'embedding' without a concept_loss lacks"
            )
        return self

    @model_validator(mode="after")
    def _the_decoder_is_trained(self) -> Self:
        if self.has_decoder and self.learns[-1] == "recognizer":
            raise ValueError("the last phase learns only the recognizer; train the decoder last, or never")
        return self

    @property
    def user_hints(self) -> UserHints | None:
        """The settings of the hints, if they are read."""
        found = settings_of(self.hints, self.hint_readers)
        return found if isinstance(found, UserHints) else None

    def applied(self) -> dict[str, Any]:
        """Return the settings that apply: of the families' blocks, only those of the chosen variants."""
        return super().applied() | {"hint_readers": chosen([self.hints], self.hint_readers)}


class TrainCaptioner(DescriberSection):
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
        if self.condition == "embedding" and "recognizer" in self.learns:
            raise ValueError(
                "learns 'recognizer' has no effect on captions, because condition is 'embedding'"
            )
        if self.learns[-1] == "recognizer":
            raise ValueError("the last phase learns only the recognizer; the decoder must be trained, too")
        return self


class Tag(Section):
    """Which images are tagged and scored, and the other answers that are scored beside the tags."""

    split: Annotated[str, one_of(SCORED)]
    top_k: Count
    threshold: Annotated[float, Field(gt=0, lt=1)]
    examples: Annotated[int, Field(ge=0)]
    seed: Seed


class Writing(Section):
    """How sentences are written: the number of hypotheses, the most words, the correction for the length."""

    beam: Beam
    max_length: MaxLength
    length_power: LengthPower


class Caption(Section):
    """How captions are written, and which images are scored."""

    split: Annotated[str, one_of(SCORED)]
    images: Annotated[str, one_of(("all", "split"))]
    beam: Beam
    length_power: LengthPower
    max_length: MaxLength
    concepts: Annotated[int, Field(ge=0, le=1000)]
    meteor: Annotated[str, one_of(("always", "auto", "never"))]
    neighbors: Count
    examples: Annotated[int, Field(ge=0)]
    seed: Seed
