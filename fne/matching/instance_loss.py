"""The instance loss: every training image is a class, and a shared classifier names it.

One classifier serves image vectors and caption vectors, so that both must end where the weights of their
class are. Its weights are stored separately from the model. With weights of zero the loss is ln(classes).
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from fne.core.distributed_layers import Dropout, Step, fan_in
from fne.core.errors import InputError
from fne.core.products import linear
from fne.core.terminal import format_bytes
from fne.matching.settings import InstanceLoss

# MatConvNet's scale of initial weights, as in the published code.
INITIAL_SCALE = 0.1
FLOAT = 4  # bytes
# Scores of a batch, their logarithms, and the gradients of both.
SCORES = 4
PATHS = 2  # images and captions


class Instance(nn.Module):
    """Cross entropy of a linear classifier of vectors of length `dim`, over ReLU and dropout."""

    def __init__(self, classes: int, dim: int, bias: bool, dropout: float) -> None:
        super().__init__()
        layer = nn.Linear(dim, classes, bias=bias)
        fan_in(layer)
        with torch.no_grad():
            layer.weight.mul_(INITIAL_SCALE)
        self.weight = nn.Parameter(layer.weight.detach())  # (classes, dim)
        self.bias = None if layer.bias is None else nn.Parameter(layer.bias.detach())
        self.dropout = Dropout(dropout)

    def forward(
        self, paths: Sequence[Tensor], labels: Tensor, step: Step | None = None
    ) -> list[tuple[Tensor, Tensor]]:
        """Return mean cross entropy and top-1 error of each path, of the same rows, in one matrix product.

        With several processes, these are the parts of the process's own rows: the sum of all processes is the
        mean over the whole batch, and so is the sum of the gradients.

        Args:
            paths: vectors (rows, dim), before ReLU and not normalized to length one.
            step: which rows of the whole batch these are; for dropout while training, and several processes.
        """
        hidden = [self.dropout(vectors.relu(), step) for vectors in paths]
        scores = linear(torch.cat(hidden), self.weight, self.bias)  # (paths x rows, classes)
        total = max(1, len(labels) if step is None else step.total)
        parts = scores.view(len(paths), len(labels), -1)
        return [
            (
                functional.cross_entropy(part, labels, reduction="sum") / total,
                (part.detach().argmax(dim=1) != labels).sum() / total,
            )
            for part in parts
        ]


@dataclass(frozen=True)
class Classes:
    """The instance loss, and the class of each training image."""

    loss: Instance
    labels: Mapping[str, int]


def class_numbers(training_ids: Sequence[str]) -> dict[str, int]:
    """Return the class of each training image: its rank among the sorted ids.

    Example:
        >>> class_numbers(["b.jpg", "a.jpg"])
        {'a.jpg': 0, 'b.jpg': 1}
    """
    return {image_id: number for number, image_id in enumerate(sorted(training_ids))}


def new_instance(classes: int, dim: int, settings: InstanceLoss, seed: int) -> Instance:
    """Return an instance loss with fresh weights, which the seed alone decides."""
    # Not the numbers that the weights of the model are drawn from.
    digest = hashlib.sha256(f"{seed} classifier".encode()).digest()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int.from_bytes(digest[:4]))
        return Instance(classes, dim, settings.bias, settings.dropout)


def classifier_bytes(
    classes: int, dim: int, batch: int, bias: bool = False, moments: int = 1, best: bool = False
) -> int:
    """Return the memory of a classifier while it is trained, with the scores of one batch of pairs.

    Args:
        moments: the values that the optimizer keeps for each weight: 1 for momentum, 2 for Adam.
        best: whether a copy of the best weights is kept.
    """
    copies = 2 + moments + int(best)  # the weights and their gradient come first
    return FLOAT * classes * (copies * (dim + int(bias)) + SCORES * PATHS * batch)


def check_memory(classes: int, dim: int, wanted: int, free: int) -> str:
    """Refuse a classifier that takes more than `free` bytes; otherwise say what it takes and what is free."""
    figures = (
        f"the classifier of {classes:,} images and {dim:,} dimensions takes {format_bytes(wanted)} with its "
        f"gradient and momentum, {format_bytes(free)} are free"
    )
    if wanted > free:
        raise InputError(f"{figures}; lower train.embed_dim, or use train.instance.classes")
    return figures
