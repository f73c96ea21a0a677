"""The `train_tagger` and `tag` sections of `params.yaml`."""

from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from fne.core.params import Section, one_of
from fne.core.variants import NoSettings, Variant, blocks, chosen, settings_of
from fne.describing import settings as shared
from fne.describing.concept_head import HINT_SUMS
from fne.describing.concepts import CONCEPT_SOURCES
from fne.describing.model import DescriberShape
from fne.describing.settings import SCORED, DescriberSection, Width
from fne.describing.tag_order import ORDERS
from fne.training.settings import Count

NO_HINTS = "none"


class UserHints(Section):
    """The settings of a tagger that reads the noisy tags of users."""

    count: Annotated[int, Field(ge=1, examples=[1000])]
    hidden: Annotated[int, Field(ge=1, le=65536, examples=[256])]
    sum: Annotated[str, one_of(HINT_SUMS), Field(examples=["logits"])]


HINTS: dict[str, Variant[Section]] = {NO_HINTS: Variant(NoSettings), "user": Variant(UserHints, UserHints)}


class TrainTagger(DescriberSection):
    """A tagger and its training; lists have one value per phase."""

    concepts: Annotated[str, one_of(CONCEPT_SOURCES)]
    concept_sources: blocks(CONCEPT_SOURCES)  # type: ignore[valid-type]
    rows: shared.Rows
    recognizer: shared.RecognizerName
    recognizers: shared.RecognizerBlocks
    concept_loss: shared.ConceptLoss
    concept_weight: shared.ConceptWeight
    concept_bias: shared.Bias
    hints: Annotated[str, one_of(HINTS)]
    hint_readers: blocks(HINTS)  # type: ignore[valid-type]
    condition: shared.ConditionName
    inject: shared.Injection
    cell: shared.CellName
    cells: shared.CellBlocks
    order: Annotated[str, one_of(ORDERS)]
    units: Width
    word_dim: Width
    dropout: shared.Dropout
    output_bias: shared.Bias
    batch: Count
    learns: shared.Learns
    recognizer_rate: shared.Rates

    @model_validator(mode="after")
    def _hints_have_concepts(self) -> Self:
        if self.hints != NO_HINTS and not self.has_recognizer:
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
    def has_decoder(self) -> bool:
        """Whether the tagger writes tags one after the other: whether any phase trains it to."""
        return any(learns != "recognizer" for learns in self.learns)

    @property
    def user_hints(self) -> UserHints | None:
        """The settings of the hints, if they are read."""
        found = settings_of(self.hints, self.hint_readers)
        return found if isinstance(found, UserHints) else None

    def shape(self, features: int, concepts: int, hints: int) -> DescriberShape:
        """Return the shape of the tagger for rows, concepts and hints of these numbers."""
        reader = self.user_hints
        return DescriberShape(
            features=features,
            rows=self.rows,
            concepts=concepts if self.has_recognizer else 0,
            hidden=self.hidden_units,
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
        return super().applied() | {"hint_readers": chosen([self.hints], self.hint_readers)}


class Tag(Section):
    """Which images are tagged and scored, and the other answers that are scored beside the tags."""

    split: Annotated[str, one_of(SCORED)]
    top_k: Count
    threshold: Annotated[float, Field(gt=0, lt=1)]
    examples: Annotated[int, Field(ge=0)]
    seed: Annotated[int, Field(ge=0, lt=2**32)]
