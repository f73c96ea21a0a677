"""What the trainer knows of a task, and nothing more.

A task owns its data, its model, its objective and its validation. The trainer owns the order of the work:
phases, epochs, steps, optimizer, clipping, checkpoints, progress. So whatever the trainer can do (resume
exactly, run in several processes, keep the best weights) works for every task.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch
from torch import Tensor, nn

from fne.training.best_epoch import Point, Scores


class Batch(Protocol):
    """What one step learns from; each task has its own kind."""

    def __len__(self) -> int:
        """Return the number of items, by which losses are averaged for the history."""

    def __str__(self) -> str:
        """Name the items, for the message about a loss that is not finite."""


@dataclass(frozen=True)
class ParameterGroup:
    """Parameters that are updated at one rate."""

    name: str  # what they are, such as `weights` or `classifier`
    parameters: Sequence[nn.Parameter]  # frozen ones are left out
    rate: float = 1.0  # a factor on the learning rate of the phase


@dataclass(frozen=True)
class Loss:
    """The loss of one batch; `value` and `terms` are for the history, and equal in all processes."""

    total: Tensor  # what is minimized; a process may hold only its own part, as gradients are summed
    value: Tensor  # the objective of the whole batch
    terms: Mapping[str, Tensor]  # its unweighted terms by name


AnyBatch = TypeVar("AnyBatch", bound=Batch)


class Task(Protocol[AnyBatch]):
    """What is learned."""

    @property
    def section(self) -> str:
        """The section of `params.yaml` that configures the task, for messages."""

    @property
    def memory_hint(self) -> str:
        """What to lower when memory runs out, for messages."""

    @property
    def trained(self) -> nn.Module:
        """Every module with weights that training changes: the model, and losses that own weights.

        Checkpoints hold the state of all of it, the model file that of the model only.
        """

    def start_phase(self, number: int) -> None:
        """Use the objective of a phase, counted from 0, and freeze what it does not train."""

    def parameter_groups(self) -> Sequence[ParameterGroup]:
        """Return what the running phase trains."""

    def steps(self) -> int:
        """Return the number of batches per epoch."""

    def batches(self, epoch: int) -> Sequence[AnyBatch]:
        """Return the batches of an epoch, counted from 0 over all phases: a function of seed and epoch."""

    def loss(self, batch: AnyBatch, generator: torch.Generator) -> Loss:
        """Return the loss of a batch.

        Random numbers are drawn from `generator`, a function of seed and update, for the whole batch, and
        each process uses those of its own rows. So a resumed run is exact and several processes equal one.
        """

    def validate(self) -> Scores:
        """Return how good the model is now, equal in all processes."""

    def warning(self, phase: int, points: Sequence[Point]) -> str | None:
        """Return what is wrong with the running phase, counted from 0, if its points show it."""
