"""The settings that taggers and captioners share: the parts of a describer, and what each phase learns.

What a phase learns:

- `recognizer`: the recognizer, from the true concepts.
- `apart`: the recognizer from the true concepts, and the decoder with the TRUE concepts as its
  condition. No gradient of one reaches the other.
- `decoder`: the decoder, with the predicted concepts. The recognizer does not change.
- `joint`: both, with the sum of both losses. Gradients of the decoder reach the recognizer.
"""

from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import Field, model_validator

from fne.core.params import PerPhase, Section, one_of
from fne.core.variants import NoSettings, Variant, blocks, chosen, settings_of
from fne.describing.concept_head import ROWS
from fne.describing.injections import INJECTIONS
from fne.describing.losses import MULTILABEL_LOSSES
from fne.describing.model import CONDITIONS
from fne.describing.recurrent_cells import CELLS
from fne.training.settings import Rate, TrainingSection

NONE = "none"  # no loss of the concepts
SCORED = ("test", "val")  # the splits that can be scored

Width = Annotated[int, Field(ge=1, le=65536)]


class Hidden(Section):
    """The settings of a recognizer with a hidden layer."""

    dim: Annotated[int, Field(ge=1, le=65536, examples=[512])]


class ForgetBias(Section):
    """The settings of an LSTM."""

    forget_bias: Annotated[float, Field(ge=-100, le=100, examples=[1.0])]


RECOGNIZERS: dict[str, Variant[Section]] = {"hidden": Variant(Hidden, Hidden), "linear": Variant(NoSettings)}
CELL_SETTINGS: dict[str, Variant[Section]] = {
    name: Variant(ForgetBias, ForgetBias) if name.startswith("lstm") else Variant(NoSettings)
    for name in CELLS
}

# The types of the keys. A section lists the keys itself: their order is that of its model files.
Rows = Annotated[str, one_of(ROWS)]
RecognizerName = Annotated[str, one_of(RECOGNIZERS)]
RecognizerBlocks = blocks(RECOGNIZERS)
ConditionName = Annotated[str, one_of(CONDITIONS)]
Injection = Annotated[str, one_of(INJECTIONS)]
CellName = Annotated[str, one_of(CELLS)]
CellBlocks = blocks(CELL_SETTINGS)
Dropout = Annotated[float, Field(ge=0, lt=1)]
ConceptLoss = Annotated[str, one_of([*MULTILABEL_LOSSES, NONE])]
ConceptWeight = Annotated[float, Field(ge=0)]
Bias = Annotated[str, one_of(("frequency", "zero"))]
Learns = Annotated[list[Annotated[str, one_of(("apart", "decoder", "joint", "recognizer"))]], PerPhase]
Rates = Annotated[list[Rate], PerPhase]


class DescriberSection(TrainingSection):
    """What follows from the keys that taggers and captioners have in common."""

    if TYPE_CHECKING:  # declared by each section, in its own order
        concepts: str
        concept_sources: dict[str, Section]
        rows: str
        recognizer: str
        recognizers: dict[str, Section]
        condition: str
        inject: str
        cell: str
        cells: dict[str, Section]
        units: int
        word_dim: int
        dropout: float
        concept_loss: str
        concept_weight: float
        concept_bias: str
        output_bias: str
        batch: int
        learns: list[str]
        recognizer_rate: list[float]

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
    def hidden_units(self) -> int:
        """The units of the recognizer's hidden layer; 0 if it is linear."""
        found = settings_of(self.recognizer, self.recognizers)
        return found.dim if isinstance(found, Hidden) else 0

    @property
    def forget_bias(self) -> float:
        """The first bias of the forget gate, if the cell has one."""
        found = settings_of(self.cell, self.cells)
        return found.forget_bias if isinstance(found, ForgetBias) else 0.0

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
