"""The `finetune` section of `params.yaml`. Importing this module does not import torch."""

from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from fne.core.params import PerPhase, Section, TrainingThreads, one_of
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

    epochs: Annotated[list[Annotated[int, Field(ge=1)]], PerPhase, Field(examples=[10])]
    learning_rate: Annotated[list[Rate], PerPhase, Field(examples=[0.01])]
    seed: Annotated[int, Field(ge=0, lt=2**32, examples=[0])]
    threads: TrainingThreads
    first: Annotated[str, Field(min_length=1, examples=["all"])]
    batch: Annotated[int, Field(ge=4, multiple_of=2, examples=[32])]
    candidates: Annotated[int, Field(ge=1, examples=[256])]
    margin: Annotated[float, Field(gt=0, examples=[1.0])]
    rank_weight: Annotated[Weight, Field(examples=[2.0])]
    image_class_weight: Annotated[Weight, Field(examples=[1.0])]
    text_class_weight: Annotated[Weight, Field(examples=[0.1])]
    cnn_rate: Annotated[Rate, Field(examples=[0.01])]
    cnn_bias_rate: Annotated[Rate, Field(examples=[0.2])]
    cnn_gain_rate: Annotated[Rate, Field(examples=[0.01])]
    cnn_first_rate: Annotated[Rate, Field(examples=[0.001])]
    momentum: Annotated[float, Field(gt=0, lt=1, examples=[0.9])]
    weight_decay: Annotated[float, Field(ge=0, lt=1, examples=[0.0001])]
    crop_share: Annotated[float, Field(gt=0, le=1, examples=[0.8])]
    crop_aspect: Annotated[float, Field(ge=1, le=10, examples=[1.333])]
    mirror: Annotated[bool, Field(examples=[True])]
    keep: Annotated[str, one_of(KEEP), Field(examples=["last"])]

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
