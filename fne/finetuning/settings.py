"""The `finetune` section of `params.yaml`. Importing this module does not import torch."""

from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from fne.core.settings import PerPhase, Section, TrainingThreads, one_of
from fne.training.best_epoch import Phase, expand_phases

# `finetune.first` for a network that is trained from its first layer on.
ALL = "all"
# The weights that a phase passes on and training ends with.
KEEP = ("best", "last")
# The kinds of weights of a network, each with a rate of its own.
WEIGHTS, BIASES, GAINS, FIRST = "weights", "biases", "gains", "first"
# The kinds of embedding that have a gradient: a single layer, as it is or scaled to length one.
WITH_GRADIENT = ("layer", "plain")
# The weights of the terms of the objective.
TERM_WEIGHTS = ("rank_weight", "image_class_weight", "text_class_weight")

Rate = Annotated[float, Field(gt=0, lt=1000)]
Weight = Annotated[float, Field(ge=0, lt=1e6)]


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
    first: Annotated[str, Field(min_length=1)] = Field(
        "all", description="the first layer of the network that is trained, such as conv5_1; all: every layer"
    )
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
    crop_share: Annotated[float, Field(gt=0, le=1)] = Field(
        0.8, description="a random crop has at least this fraction of the area of its image"
    )
    crop_aspect: Annotated[float, Field(ge=1, le=10)] = Field(
        1.333, description="the largest ratio of the sides of a crop"
    )
    mirror: bool = Field(True, description="whether half of the crops are mirrored")
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


def kind_fault(kind: str) -> str:
    """Return why an embedding cannot be tuned."""
    allowed = " or ".join(repr(each) for each in WITH_GRADIENT)
    reason = "has no gradient" if kind in ("fne", "zscore") else "is not that of a single layer"
    return f"needs embed.kind {allowed}; an embedding of kind '{kind}' {reason}"
