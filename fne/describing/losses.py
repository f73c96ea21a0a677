"""The losses of taggers and captioners: of the labels of an image, and of the words of a sequence.

Every loss of labels is called as `loss(logits, labels)` with `logits` and 0/1 `labels` (images, labels), and
returns one value per image (images). The caller averages over images.

`word_losses` works on packed positions: the real words of a batch and no padding. It is the map to the
outputs and the cross entropy in one, and keeps one array (positions, outputs) instead of three.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import binary_cross_entropy_with_logits, log_softmax

from fne.core.products import linear, product

MultilabelLoss = Callable[[Tensor, Tensor], Tensor]


def logistic(logits: Tensor, labels: Tensor) -> Tensor:
    """Binary cross entropy of every label, summed over labels."""
    values = binary_cross_entropy_with_logits(logits, labels.to(logits.dtype), reduction="none")
    return values.sum(dim=1)


def softmax(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross entropy with a target that is spread evenly over the true labels; 0 without true labels."""
    targets = labels.to(logits.dtype)
    targets = targets / targets.sum(dim=1, keepdim=True).clamp(min=1)
    return -(targets * log_softmax(logits, dim=1)).sum(dim=1)


def warp(logits: Tensor, labels: Tensor) -> Tensor:
    """Weighted approximate ranking, with exact ranks instead of sampled ones.

    For each true label, r is the number of false labels that score above it minus the margin 1. The
    loss is the mean violation of these r labels, weighted with 1 + 1/2 + … + 1/r: what sampling one
    of them gives on average. An image without true or without false labels has loss 0.
    """
    true = labels.to(torch.bool)
    image, label = true.nonzero(as_tuple=True)
    violations = (1 - logits[image, label][:, None] + logits[image]).clamp(min=0)  # (true labels, labels)
    violations = violations.masked_fill(true[image], 0)
    ranks = (violations > 0).sum(dim=1)
    steps = torch.arange(1, logits.shape[1] + 1, dtype=logits.dtype, device=logits.device)
    weights = torch.cat([steps.new_zeros(1), steps.reciprocal().cumsum(dim=0)])  # by rank, from 0
    values = weights[ranks] * violations.sum(dim=1) / ranks.clamp(min=1)
    return logits.new_zeros(len(logits)).index_add(0, image, values)


def word_losses(states: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    """Return the negative log probability of each target, an output number (positions).

    Shapes: `states` (positions, units), `weight` (outputs, units), `bias` (outputs).
    """
    losses: Tensor = _LinearCrossEntropy.apply(states, weight, bias, targets)
    return losses


def perplexity(total_loss: float, words: int) -> float:
    """Return exp of the mean loss per word.

    Example:
        >>> perplexity(0.0, 3)
        1.0
    """
    return float(torch.tensor(total_loss / words, dtype=torch.float64).exp())


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
        logits = linear(states, weight, bias)
        normalizers = logits.logsumexp(dim=1)
        losses = normalizers - logits.gather(1, targets[:, None]).squeeze(1)
        # The logits become probabilities in place.
        probabilities = logits.sub_(normalizers[:, None]).exp_()
        ctx.save_for_backward(states, weight, targets, probabilities)
        return losses

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_losses: Tensor) -> tuple[Tensor | None, ...]:
        states, weight, targets, probabilities = ctx.saved_tensors
        of_logits = probabilities * of_losses[:, None]
        of_logits[torch.arange(len(targets), device=targets.device), targets] -= of_losses
        return product(of_logits, weight), product(of_logits.T, states), of_logits.sum(dim=0), None


MULTILABEL_LOSSES: dict[str, MultilabelLoss] = {"logistic": logistic, "softmax": softmax, "warp": warp}
