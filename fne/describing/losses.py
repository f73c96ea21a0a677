"""Losses of images with several labels.

Every loss is called as `loss(logits, labels)` with `logits` and 0/1 `labels` (images, labels), and returns
one value per image (images). The caller averages over images.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, log_softmax

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


MULTILABEL_LOSSES: dict[str, MultilabelLoss] = {"logistic": logistic, "softmax": softmax, "warp": warp}
