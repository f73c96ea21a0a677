"""The keys of a section that every trained task has. Importing this module does not import torch."""

from typing import Annotated, Any

from pydantic import Field

from fne.core.settings import PerPhase, Section, TrainingThreads, one_of
from fne.training.best_epoch import expand_phases

Count = Annotated[int, Field(ge=1)]
Rate = Annotated[float, Field(gt=0, lt=1000)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
# The weights that a phase passes on and training ends with.
KEEP = ("best", "last")


class Rmsprop(Section):
    """RMSprop as torch has it."""

    decay: float = Field(0.99, gt=0, lt=1, description="decay of the mean of squared gradients")
    epsilon: float = Field(1e-8, gt=0, lt=1, description="added after the root")


class RmspropInside(Section):
    """RMSprop as TensorFlow and NeuralTalk have it."""

    decay: float = Field(0.999, gt=0, lt=1, description="decay of the mean of squared gradients")
    epsilon: float = Field(1e-8, gt=0, lt=1, description="added below the root")
    first: float = Field(
        0.0, ge=0, le=1, description="initial mean of squared gradients: 0 in NeuralTalk, 1 in TensorFlow"
    )


class SgdNesterov(Section):
    """Stochastic gradient descent with Nesterov's momentum."""

    momentum: float = Field(0.9, gt=0, lt=1, description="momentum of the gradients")
    weight_decay: float = Field(0.0001, ge=0, lt=1, description="L2 penalty of all weights")


class TrainingSection(Section):
    """What the trainer needs; a task's own section adds its keys. Lists have one value per phase."""

    seed: Seed = Field(0, description="random seed of weights, batches, captions and dropout")
    threads: TrainingThreads = Field(
        2,
        description="threads of the CPU, on any machine; the processes of torchrun divide them; "
        "another number gives another model",
    )
    optimizer: Annotated[
        str, one_of(("adam", "adam_uncorrected", "rmsprop", "rmsprop_inside", "sgd_nesterov"))
    ] = Field("adam", description="the optimizer of all phases")
    clip: float = Field(
        0.0, ge=0, description="the gradient norm above which gradients are clipped; 0: never"
    )
    clip_by: Annotated[str, one_of(("element", "global", "group", "tensor"))] = Field(
        "global", description="whose norm is clipped: all gradients together, each part of a model, …"
    )
    validate_every: int = Field(
        0, ge=0, description="steps between validations; 0: validate after every epoch"
    )
    keep: Annotated[str, one_of(KEEP)] = Field(
        "best", description="the weights that a phase passes on and training ends with"
    )
    learning_rate: Annotated[list[Rate], PerPhase] = Field([0.01, 0.003], description="the learning rate")
    epochs: Annotated[list[Count], PerPhase] = Field([20, 10], description="epochs at most")
    patience: Annotated[list[Count], PerPhase] = Field(
        [5], description="epochs without a better validation before a phase ends"
    )
    rmsprop: Rmsprop = Rmsprop()
    rmsprop_inside: RmspropInside = RmspropInside()
    sgd_nesterov: SgdNesterov = SgdNesterov()

    def phase_keys(self) -> dict[str, list[Any]]:
        """Return the values of every key that may have one per phase."""
        return {key: getattr(self, key) for key in ("learning_rate", "epochs", "patience")}

    def phase_values(self) -> list[dict[str, Any]]:
        """Return the keys of each phase; `ValueError` if lists have different lengths."""
        return expand_phases(self.phase_keys())
