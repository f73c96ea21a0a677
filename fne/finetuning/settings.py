"""The sections that train the image network, each with another model. Importing this does not import torch.

`finetune` trains it with a model of matching, `tune_tagger` and `tune_captioner` with those of their names.
"""

from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator

from fne.core.settings import PerPhase, Section, TrainingThreads, one_of
from fne.describing.settings import CAPTIONER, TAGGER, HeadRate, Learned
from fne.training.best_epoch import Phase, expand_phases
from fne.training.settings import KEEP, Count, Rate, TrainingSection

# `finetune.first` for a network that is trained from its first layer on.
ALL = "all"
# The pipeline of each section.
PIPELINES = {
    "finetune": "pipelines/finetuning",
    "tune_captioner": "pipelines/tuned_captioning",
    "tune_tagger": "pipelines/tuned_tagging",
}
# The kinds of weights of a network, each with a rate of its own.
WEIGHTS, BIASES, GAINS, FIRST = "weights", "biases", "gains", "first"
# The kinds of embedding that have a gradient.
WITH_GRADIENT = ("blocks", "layer", "plain", "raw", "zscore")
# The weights of the terms of the objective.
TERM_WEIGHTS = ("rank_weight", "image_class_weight", "text_class_weight")

Weight = Annotated[float, Field(ge=0, lt=1e6)]
First = Annotated[str, Field(min_length=1)]
CropShare = Annotated[float, Field(gt=0, le=1)]
CropAspect = Annotated[float, Field(ge=1, le=10)]
# Keys of every section that trains the network.
FIRST_LAYER: str = Field(
    "all", description="the first layer of the network that is trained, such as conv5_1; all: every layer"
)
CROP_SHARE: float = Field(
    0.8, description="a random crop has at least this fraction of the area of its image"
)
CROP_ASPECT: float = Field(1.333, description="the largest ratio of the sides of a crop")
MIRROR: bool = Field(True, description="whether half of the crops are mirrored")


class Finetune(Section):
    """How the image network is trained; lists have one value per phase."""

    epochs: Annotated[list[Annotated[int, Field(ge=1)]], PerPhase] = Field(
        [10], description="epochs, or a list with one value per phase"
    )
    learning_rate: Annotated[list[Rate], PerPhase] = Field([0.01], description="the learning rate")
    seed: Annotated[int, Field(ge=0, lt=2**32)] = Field(
        0, description="random seed of batches, captions, crops and dropout"
    )
    threads: TrainingThreads = Field(2, description="threads of the CPU, on any machine, as in `train`")
    first: First = FIRST_LAYER
    batch: Annotated[int, Field(ge=4, multiple_of=2)] = Field(
        32,
        description="images per step, an even number; half of them are anchors with a caption of their own",
    )
    candidates: Annotated[int, Field(ge=1)] = Field(
        256, description="captions from which the nearest wrong one of each anchor is taken"
    )
    margin: Annotated[float, Field(gt=0)] = Field(
        1.0, description="by how much a true pair must score higher than a wrong one"
    )
    rank_weight: Weight = Field(
        2.0, description="the weight of the ranking loss: the sum over the anchors, divided by the images"
    )
    image_class_weight: Weight = Field(
        1.0, description="the weight of the instance loss of images, with the classifier of `train`"
    )
    text_class_weight: Weight = Field(0.1, description="the weight of the instance loss of captions")
    cnn_rate: Rate = Field(0.01, description="a factor on the learning rate of the weights of the network")
    cnn_bias_rate: Rate = Field(0.2, description="a factor on the learning rate of its biases")
    cnn_gain_rate: Rate = Field(
        0.01, description="a factor on the learning rate of the gains of its batch normalization"
    )
    cnn_first_rate: Rate = Field(0.001, description="a factor on the learning rate of its first convolution")
    momentum: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.9, description="Nesterov's momentum of stochastic gradient descent"
    )
    weight_decay: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.0001, description="L2 penalty of all trained weights"
    )
    crop_share: CropShare = CROP_SHARE
    crop_aspect: CropAspect = CROP_ASPECT
    mirror: bool = MIRROR
    keep: Annotated[str, one_of(KEEP)] = Field(
        "last", description="the weights that a phase passes on and training ends with"
    )

    @model_validator(mode="after")
    def _phases_fit(self) -> Self:
        self.phases()
        return self

    @model_validator(mode="after")
    def _has_terms(self) -> Self:
        if not any(getattr(self, key) for key in TERM_WEIGHTS):
            named = f"{', '.join(TERM_WEIGHTS[:-1])} and {TERM_WEIGHTS[-1]}"
            raise ValueError(f"{named} are all 0, so nothing would be learned")
        return self

    @property
    def has_instance_loss(self) -> bool:
        """Whether the classifier is used."""
        return bool(self.image_class_weight or self.text_class_weight)

    def network_rates(self) -> dict[str, float]:
        """Return the factors on the learning rate of the network, by the kind of weights."""
        return {
            WEIGHTS: self.cnn_rate,
            BIASES: self.cnn_bias_rate,
            GAINS: self.cnn_gain_rate,
            FIRST: self.cnn_first_rate,
        }

    def phases(self) -> list[Phase]:
        """Return the phases of the training; none of them ends early."""
        title = " + ".join(["ranking"] * bool(self.rank_weight) + ["instance"] * self.has_instance_loss)
        values: dict[str, list[Any]] = {"learning_rate": self.learning_rate, "epochs": self.epochs}
        return [
            Phase(title, each["learning_rate"], each["epochs"], each["epochs"])
            for each in expand_phases(values)
        ]


class TuneDescribing(TrainingSection):
    """What `tune_tagger` and `tune_captioner` have in common; lists have one value per phase.

    Everything else is as in the training of the model that this starts from.
    """

    kind: ClassVar[str]

    seed: Annotated[int, Field(ge=0, lt=2**32)] = Field(
        0, description="random seed of batches, crops and dropout"
    )
    first: First = FIRST_LAYER
    learns: Annotated[list[Learned], PerPhase] = Field(
        ["jointly"], description="what a phase trains besides the network, as in the training before"
    )
    network_rate: Annotated[list[HeadRate], PerPhase] = Field(
        [0.0001], description="the learning rate of the network; 0: it stays as it is"
    )
    learning_rate: Annotated[list[Rate], PerPhase] = Field(
        [0.0005], description="the learning rate of the decoder"
    )
    concept_head_rate: Annotated[list[HeadRate], PerPhase] = Field(
        [0.0001], description="the learning rate of the concept head; 0: it stays as it is"
    )
    epochs: Annotated[list[Count], PerPhase] = Field([5], description="epochs at most")
    iterations: Annotated[list[Annotated[int, Field(ge=0)]], PerPhase] = Field(
        [0], description="batches of a phase at most; 0: as many as its epochs have"
    )
    batch: Count = Field(32, description="captions, or images of a tagger, per step")
    clip: float = Field(
        5.0, ge=0, description="the gradient norm above which gradients are clipped; 0: never"
    )
    clip_by: Annotated[str, one_of(("element", "global", "group", "tensor"))] = Field(
        "group", description="whose norm is clipped; groups are the network, the concept head and the decoder"
    )
    crop_share: CropShare = CROP_SHARE
    crop_aspect: CropAspect = CROP_ASPECT
    mirror: bool = MIRROR

    @model_validator(mode="after")
    def _phases_fit(self) -> Self:
        self.phase_values()
        return self

    @model_validator(mode="after")
    def _the_network_is_trained(self) -> Self:
        trained = [
            each for each in self.phase_values() if each["network_rate"] and each["learns"] != "decoder"
        ]
        if not trained:
            raise ValueError(
                "no phase trains the network: network_rate is 0, or learns is 'decoder', whose input is fixed"
            )
        return self

    def phase_keys(self) -> dict[str, list[Any]]:
        """Return the values of every key that may have one per phase."""
        names = ("learns", "network_rate", "concept_head_rate", "iterations")
        own: dict[str, list[Any]] = {name: getattr(self, name) for name in names}
        return own | super().phase_keys()

    def titles(self) -> list[str]:
        """Return what each phase learns, for the progress bar."""
        return [values["learns"] for values in self.phase_values()]


class TuneTagger(TuneDescribing):
    """How the image network is trained together with a tagger."""

    kind: ClassVar[str] = TAGGER


class TuneCaptioner(TuneDescribing):
    """How the image network is trained together with a captioner."""

    kind: ClassVar[str] = CAPTIONER


def kind_fault(kind: str) -> str:
    """Return why an embedding cannot be tuned."""
    allowed = ", ".join(repr(each) for each in WITH_GRADIENT)
    rounded = kind.partition("_")[2]
    reason = f"is rounded to {rounded}" if rounded else "is ternary, which has no gradient"
    return f"needs an embed.kind with a gradient ({allowed}); an embedding of kind '{kind}' {reason}"
