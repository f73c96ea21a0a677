"""The `train_captioner` and `caption` sections of `params.yaml`."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from fne.core.params import Section, one_of
from fne.core.variants import blocks
from fne.describing import settings as shared
from fne.describing.captioning.data import DRAWS
from fne.describing.concepts import CONCEPT_SOURCES
from fne.describing.model import DescriberShape
from fne.describing.numpy_model import Beam, LengthPower, MaxLength
from fne.describing.settings import SCORED, DescriberSection, Width
from fne.text.caption_vocabulary import WORDS
from fne.training.settings import Count

# The validation score that chooses the epoch, and its name among the scores.
SELECT = {"bleu_4": "BLEU-4", "cider": "CIDEr-D", "likelihood": "word_probability"}
CAPTIONED = ("all", "split")
METEOR = ("always", "auto", "never")


class TrainCaptioner(DescriberSection):
    """A captioner and its training; lists have one value per phase."""

    concepts: Annotated[str, one_of(CONCEPT_SOURCES)]
    concept_sources: blocks(CONCEPT_SOURCES)  # type: ignore[valid-type]
    words: Annotated[str, one_of(WORDS)]
    min_count: Count
    max_words: Count
    max_length: Annotated[int, Field(ge=1, le=1000)]
    rows: shared.Rows
    recognizer: shared.RecognizerName
    recognizers: shared.RecognizerBlocks
    condition: shared.ConditionName
    inject: shared.Injection
    cell: shared.CellName
    cells: shared.CellBlocks
    units: Width
    word_dim: Width
    dropout: shared.Dropout
    concept_loss: shared.ConceptLoss
    concept_weight: shared.ConceptWeight
    concept_bias: shared.Bias
    output_bias: shared.Bias
    captions: Annotated[str, one_of(DRAWS)]
    batch: Count
    select: Annotated[str, one_of(SELECT)]
    validation_images: Annotated[int, Field(ge=0)]
    validation_beam: Count
    learns: shared.Learns
    recognizer_rate: shared.Rates

    @model_validator(mode="after")
    def _the_decoder_is_trained(self) -> Self:
        if self.condition == "embedding" and "recognizer" in self.learns:
            raise ValueError(
                "learns 'recognizer' has no effect on captions, because condition is 'embedding'"
            )
        if self.learns[-1] == "recognizer":
            raise ValueError("the last phase learns only the recognizer; the decoder must be trained, too")
        return self

    def shape(self, features: int, concepts: int, outputs: int) -> DescriberShape:
        """Return the shape of the captioner for embeddings, concepts and words of these numbers."""
        return DescriberShape(
            features=features,
            rows=self.rows,
            concepts=concepts if self.has_recognizer else 0,
            hidden=self.hidden_units,
            condition=self.condition,
            outputs=outputs,
            word_dim=self.word_dim,
            units=self.units,
            cell=self.cell,
            inject=self.inject,
        )


class Caption(Section):
    """How captions are written, and which images are scored."""

    split: Annotated[str, one_of(SCORED)]
    images: Annotated[str, one_of(CAPTIONED)]
    beam: Beam
    length_power: LengthPower
    max_length: MaxLength
    concepts: Annotated[int, Field(ge=0, le=1000)]
    meteor: Annotated[str, one_of(METEOR)]
    neighbors: Count
    examples: Annotated[int, Field(ge=0)]
    seed: Annotated[int, Field(ge=0, lt=2**32)]
