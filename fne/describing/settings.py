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

from fne.core.settings import PerPhase, Section, one_of
from fne.training.settings import Count, Rate, Seed, TrainingSection

TAGGER, CAPTIONER = "tagger", "captioner"  # in lineages
NONE = "none"  # no loss of the concepts, and no user tags
WRITTEN = ("all", "test", "val")  # the images that get tags or captions: of the catalog, or of a split
# The validation score that chooses the epoch of a captioner, and its name among the scores.
SELECT = {"bleu_4": "BLEU-4", "cider": "CIDEr-D", "likelihood": "word_probability"}

Width = Annotated[int, Field(ge=1, le=65536)]
HeadRate = Annotated[float, Field(ge=0, lt=1000)]
Beam = Annotated[int, Field(ge=1, le=1000)]
LengthPower = Annotated[float, Field(ge=0, le=10)]
MaxLength = Annotated[int, Field(ge=1, le=1000)]
Initial = Annotated[str, one_of(("frequency", "zero"))]
Learned = Annotated[str, one_of(("concept_head", "decoder", "jointly", "separately"))]


class Hidden(Section):
    """A concept head with one layer before the concepts."""

    dim: Width = Field(512, description="units of the layer")


class Lstm(Section):
    """The cell of an LSTM."""

    forget_bias: float = Field(1.0, ge=-100, le=100, description="initial bias of the forget gate")


class TagConcepts(Section):
    """Concepts that are tags of the data set."""

    min_images: Count = Field(1, description="tags of fewer training images are left out")


class WordConcepts(Section):
    """Concepts that are words of the captions."""

    count: int = Field(
        1000, ge=1, le=100_000, description="how many words; fewer where the captions have fewer"
    )
    min_images: Count = Field(5, description="words of fewer training images are left out")
    stop_words: Annotated[str, one_of(("drop", "keep"))] = Field(
        "drop", description="words without content (a, is, in)"
    )


class CaptionConcepts(WordConcepts):
    """Concepts of a captioner that are words of the captions."""

    min_images: Count = Field(1, description="words of fewer training images are left out")
    stop_words: Annotated[str, one_of(("drop", "keep"))] = Field(
        "keep", description="words without content (a, is, in); captions need them"
    )


class UserTags(Section):
    """The noisy tags of users, which a tagger reads besides the image."""

    count: Count = Field(1000, description="how many user tags are read, the most frequent ones")
    hidden: Width = Field(256, description="units of the layer that reads them")
    sum: Annotated[str, one_of(("logits", "probabilities"))] = Field(
        "logits", description="what image and user tags add up"
    )


class DescribingSection(TrainingSection):
    """What taggers and captioners have in common; lists have one value per phase."""

    kind: ClassVar[str]

    clip: float = Field(
        5.0, ge=0, description="the gradient norm above which gradients are clipped; 0: never"
    )
    clip_by: Annotated[str, one_of(("element", "global", "group", "tensor"))] = Field(
        "group", description="whose norm is clipped; groups are the concept head and the decoder"
    )
    rows: Annotated[str, one_of(("raw", "standardized", "unit"))] = Field(
        "standardized",
        description="image rows before the model: by the training rows, length one, as they are",
    )
    concept_head: Annotated[str, one_of(("hidden", "linear"))] = Field(
        "linear", description="what predicts concepts; hidden has one layer before them"
    )
    concept_loss: Annotated[str, one_of(("logistic", NONE, "softmax", "warp"))] = Field(
        "logistic", description="the loss of the concept head"
    )
    concept_weight: float = Field(
        1.0, ge=0, description="the weight of the concepts' loss, beside that of the sequence"
    )
    concept_bias: Initial = Field(
        "frequency",
        description="initial biases of the concept head: log odds of the training images, or zero",
    )
    condition: Annotated[str, one_of(("concepts", "embedding", "hidden"))] = Field(
        "concepts",
        description="input of the decoder: probabilities of concepts, the hidden layer, or the image row",
    )
    inject: Annotated[str, one_of(("bias", "every", "input", "output", "state"))] = Field(
        "state",
        description="where the condition enters: the first state, a first word, the bias of the first step, "
        "every step, the output",
    )
    cell: Annotated[str, one_of(("gru", "lstm", "lstm_relu", "rnn_relu"))] = Field(
        "lstm", description="the recurrent cell of the decoder"
    )
    input_activation: Annotated[str, one_of((NONE, "relu"))] = Field(
        NONE, description="activation of the mapped condition and of mapped words, of cell rnn_relu only"
    )
    units: Width = Field(128, description="units of the decoder's state")
    word_dim: Width = Field(128, description="values of the vector of a word or tag")
    dropout: float = Field(
        0.2, ge=0, lt=1, description="dropout of word vectors and of states before the output"
    )
    output_bias: Initial = Field(
        "frequency", description="initial biases of the output: log frequencies, or zero"
    )
    batch: Count = Field(32, description="captions, or images of a tagger, per step")
    learns: Annotated[list[Learned], PerPhase] = Field(
        ["separately", "jointly"],
        description="what a phase trains: both parts separately, the decoder from true concepts; "
        "both jointly; or one of them alone",
    )
    concept_head_rate: Annotated[list[HeadRate], PerPhase] = Field(
        [0.0003], description="the learning rate of the concept head; 0: it stays as it is"
    )
    iterations: Annotated[list[Annotated[int, Field(ge=0)]], PerPhase] = Field(
        [0], description="batches of a phase at most; 0: as many as its epochs have"
    )
    # Variants of `concept_head` and `cell`.
    hidden: Hidden = Hidden()
    lstm: Lstm = Lstm()
    lstm_relu: Lstm = Lstm()

    @model_validator(mode="after")
    def _phases_fit(self) -> Self:
        self.phase_values()
        return self

    @model_validator(mode="after")
    def _the_cell_has_one_map(self) -> Self:
        if self.input_activation != NONE and self.cell != "rnn_relu":
            raise ValueError(
                f"input_activation '{self.input_activation}' needs cell 'rnn_relu', not '{self.cell}': the "
                "maps of other cells are gates"
            )
        return self

    @model_validator(mode="after")
    def _the_condition_exists(self) -> Self:
        if self.condition == "hidden" and self.concept_head == "linear":
            raise ValueError(
                "condition 'hidden' needs concept_head 'hidden': a linear one has no hidden layer"
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
        """The initial bias of the forget gate, if the cell has one."""
        found = getattr(self, self.cell, None)
        return found.forget_bias if isinstance(found, Lstm) else 0.0

    def phase_keys(self) -> dict[str, list[Any]]:
        """Return the values of every key that may have one per phase."""
        names = ("learns", "concept_head_rate", "iterations")
        own: dict[str, list[Any]] = {name: getattr(self, name) for name in names}
        return own | super().phase_keys()

    def titles(self) -> list[str]:
        """Return what each phase learns, for the progress bar."""
        return [values["learns"] for values in self.phase_values()]


class TrainTagger(DescribingSection):
    """A tagger and its training: the tags of an image are its concepts, in an order."""

    kind: ClassVar[str] = TAGGER

    concepts: Annotated[str, one_of(("tags", "words"))] = Field(
        "tags", description="tags of the data set, or the most frequent words of the training captions"
    )
    cell: Annotated[str, one_of(("gru", "lstm", "lstm_relu", "rnn_relu"))] = Field(
        "lstm_relu", description="the recurrent cell of the decoder"
    )
    word_dim: Width = Field(32, description="values of the vector of a tag")
    batch: Count = Field(16, description="images per step")
    learning_rate: Annotated[list[Rate], PerPhase] = Field(
        [0.008], description="the learning rate of the decoder"
    )
    concept_head_rate: Annotated[list[HeadRate], PerPhase] = Field(
        [0.0002], description="the learning rate of the concept head; 0: it stays as it is"
    )
    epochs: Annotated[list[Count], PerPhase] = Field([15], description="epochs at most")
    patience: Annotated[list[Count], PerPhase] = Field(
        [15], description="epochs without a better validation before a phase ends"
    )
    user_tags: Annotated[str, one_of((NONE, "user"))] = Field(
        NONE, description="whether the noisy tags of users add to the concepts"
    )
    order: Annotated[str, one_of(("frequent_first", "rare_first"))] = Field(
        "rare_first", description="the order in which tags are written"
    )
    # Variants of `concepts` and `user_tags`.
    tags: TagConcepts = TagConcepts()
    words: WordConcepts = WordConcepts()
    user: UserTags = UserTags()

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
        return self.user if self.user_tags == "user" else None


class TrainCaptioner(DescribingSection):
    """A captioner and its training: it writes the words of captions."""

    kind: ClassVar[str] = CAPTIONER

    concepts: Annotated[str, one_of(("tags", "words"))] = Field(
        "words", description="the most frequent words of the training captions, or tags of the data set"
    )
    inject: Annotated[str, one_of(("bias", "every", "input", "output", "state"))] = Field(
        "every",
        description="where the condition enters: the first state, a first word, the bias of the first step, "
        "every step, the output",
    )
    learning_rate: Annotated[list[Rate], PerPhase] = Field(
        [0.005], description="the learning rate of the decoder"
    )
    epochs: Annotated[list[Count], PerPhase] = Field([6, 10], description="epochs at most")
    patience: Annotated[list[Count], PerPhase] = Field(
        [10], description="epochs without a better validation before a phase ends"
    )
    cut: Annotated[str, one_of(("alphanumeric", "ptb"))] = Field(
        "ptb", description="how captions are cut: as published scores expect, or letters and digits only"
    )
    min_count: Count = Field(3, description="words that are rarer in the training captions are never written")
    max_words: Count = Field(12000, description="at most this many words, the frequent ones first")
    max_length: MaxLength = Field(20, description="words of a caption; longer ones are cut")
    captions: Annotated[str, one_of(("all", "one"))] = Field(
        "all", description="captions of an image and epoch: all, or one that is drawn"
    )
    select: Annotated[str, one_of(SELECT)] = Field(
        "cider", description="the validation score that chooses the best epoch"
    )
    validation_images: int = Field(
        500, ge=0, description="at most this many images are captioned in a validation; 0: all"
    )
    validation_beam: Count = Field(1, description="hypotheses of the beam search in a validation; 1: greedy")
    # Variants of `concepts`.
    tags: TagConcepts = TagConcepts()
    words: CaptionConcepts = CaptionConcepts()

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

    images: Annotated[str, one_of(WRITTEN)] = Field("test", description="which images are tagged")
    top_k: Count = Field(3, description="how many of the likeliest concepts are an answer of fixed length")


class Sampled(Section):
    """Words that are drawn."""

    seed: Seed = Field(0, description="random seed of the words")


class Writing(Section):
    """How sentences are written: the number of hypotheses, the most words, the correction for the length."""

    words: Annotated[str, one_of(("likeliest", "sampled"))] = Field(
        "likeliest",
        description="a beam search for the likeliest words, or words drawn by their probabilities",
    )
    beam: Beam = Field(3, description="hypotheses of the beam search, 1: greedy; or sentences that are drawn")
    max_length: MaxLength = Field(20, description="words of a caption at most")
    length_power: LengthPower = Field(
        0.0, description="log probabilities are divided by the length to this power; 0: not, as published"
    )
    sampled: Sampled = Sampled()  # a variant of `words`


class WriteCaptions(Writing):
    """Which images get captions, how these are written, and how many of the likeliest concepts are kept."""

    images: Annotated[str, one_of(WRITTEN)] = Field("all", description="which images get captions")
    concepts: int = Field(
        10, ge=0, le=1000, description="how many of the likeliest concepts are kept for each image"
    )
