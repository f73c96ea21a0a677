"""Cross entropy of word sequences.

`word_losses` works on packed positions: the real words of a batch and no padding. It is the map to the
outputs and the cross entropy in one, and keeps one array (positions, outputs) instead of three.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def word_losses(states: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    """Return the negative log probability of each target (positions).

    Args:
        states: what the outputs are computed from (positions, units).
        weight: the map to the outputs (outputs, units).
        bias: its biases (outputs).
        targets: the number of the true output at each position (positions).
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
        logits = torch.addmm(bias, states, weight.T)
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
        return of_logits @ weight, of_logits.T @ states, of_logits.sum(dim=0), None
