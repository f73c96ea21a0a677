"""Cross entropy of word sequences.

`word_losses` works on packed positions: the real words of a batch and no padding. It is the map to the
outputs and the cross entropy in one, and keeps one array (positions, outputs) instead of three.
`padded_word_losses` does the same for padded logits with a mask.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import cross_entropy


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


def padded_word_losses(logits: Tensor, targets: Tensor, lengths: Tensor) -> Tensor:
    """Return the negative log probability of every sequence: the sum over its words (sequences).

    Args:
        logits: one score per output (sequences, longest, outputs).
        targets: padded numbers of outputs; the content of the padding does not matter (sequences, longest).
        lengths: the number of words of each sequence (sequences).
    """
    inside = torch.arange(targets.shape[1], device=targets.device) < lengths.to(targets.device)[:, None]
    losses = cross_entropy(
        logits.flatten(end_dim=1), targets.masked_fill(~inside, 0).flatten(), reduction="none"
    )
    return losses.view_as(targets).masked_fill(~inside, 0).sum(dim=1)


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
