"""Layers whose training steps are the same in one process and in several: dropout and batch normalization.

Modules with such layers are called as `module(inputs, step)`. In training mode they need a `Step`, which says
which rows of the batch the process has and where random numbers come from.

Every process must call the modules in the same order, also if it has no rows of the batch: they draw random
numbers for the whole batch, and batch normalization waits for all processes.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fne.core.processes import ALONE, Processes


@dataclass(frozen=True)
class Step:
    """The rows of one training batch that this process computes."""

    # On the CPU, and in the same state in all processes, such as one that is seeded by (seed, update). Random
    # numbers are drawn for the whole batch, so that a resumed run and a run of several processes draw what an
    # undisturbed single process does.
    generator: torch.Generator
    total: int  # rows of the whole batch
    rows: slice  # those of this process
    processes: Processes = ALONE

    def uniform(self, *shape: int) -> Tensor:
        """Draw numbers in [0, 1) for the whole batch (total, *shape), and return those of the own rows."""
        return torch.rand(self.total, *shape, generator=self.generator)[self.rows]


def needed(step: Step | None) -> Step:
    """Return the step of a module in training mode, which needs one."""
    if step is None:
        raise ValueError("a module in training mode needs the step: pass one, or call eval() first")
    return step


class Dropout(nn.Module):
    """Sets a fraction of the values to zero while training, and scales the others up."""

    def __init__(self, fraction: float) -> None:
        super().__init__()
        if not 0 <= fraction < 1:
            raise ValueError(f"dropout must be at least 0 and less than 1, got {fraction}")
        self.fraction = fraction

    def forward(self, rows: Tensor, step: Step | None = None) -> Tensor:
        """Drop values of (rows, …)."""
        if not self.training or not self.fraction:
            return rows
        kept = needed(step).uniform(*rows.shape[1:]) >= self.fraction
        return rows * kept.to(rows.device) / (1 - self.fraction)


class SyncBatchNorm(nn.BatchNorm1d):
    """Batch normalization of (rows, features) by the mean and variance of the rows of all processes.

    One process computes `torch.nn.BatchNorm1d` bit for bit. Unlike `torch.nn.SyncBatchNorm`, it runs on CPUs,
    and processes may have different numbers of rows, or none.
    """

    def forward(self, rows: Tensor, step: Step | None = None) -> Tensor:
        """Normalize (rows, features)."""
        if not self.training or needed(step).processes.count == 1:
            return super().forward(rows)
        processes = needed(step).processes
        rows = rows.float() if rows.dtype.itemsize < 4 else rows
        mean, variance, count = _moments(rows, processes)
        if count < 2:
            raise ValueError(f"batch normalization needs at least 2 rows while training, got {count}")
        self._update(mean, variance * (count / (count - 1)))
        normalized: Tensor = _Normalize.apply(rows, mean, torch.rsqrt(variance + self.eps), count, processes)
        return normalized * self.weight + self.bias

    @torch.no_grad()
    def _update(self, mean: Tensor, variance: Tensor) -> None:
        # As BatchNorm1d does: the variance of the running statistics is unbiased.
        assert self.num_batches_tracked is not None
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.momentum is not None
        self.num_batches_tracked.add_(1)
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
        self.running_var.lerp_(variance.to(self.running_var.dtype), self.momentum)


class _Normalize(torch.autograd.Function):
    """Rows (own, features), minus the mean and divided by the deviation over all processes."""

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, mean: Tensor, scale: Tensor, count: int, processes: Processes
    ) -> Tensor:
        normalized = (rows - mean) * scale
        ctx.save_for_backward(normalized, scale)
        ctx.count, ctx.processes = count, processes
        return normalized

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None, None]:
        normalized, scale = ctx.saved_tensors
        gradient = gradients[0]
        sums = torch.stack([gradient.sum(dim=0), (gradient * normalized).sum(dim=0)])
        ctx.processes.add(sums)
        of_mean, of_scale = sums / ctx.count
        return (gradient - of_mean - normalized * of_scale) * scale, None, None, None, None


def xavier(layer: nn.Linear) -> None:
    """Draw weights as Glorot and Bengio do; biases are zero."""
    nn.init.xavier_uniform_(layer.weight)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


def fan_in(layer: nn.Linear) -> None:
    """Draw weights uniformly with a variance of 1 / inputs, as MatConvNet's networks do; biases are zero."""
    bound = math.sqrt(3 / layer.in_features)
    nn.init.uniform_(layer.weight, -bound, bound)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


@torch.no_grad()
def _moments(rows: Tensor, processes: Processes) -> tuple[Tensor, Tensor, int]:
    """Return the mean and the biased variance over the rows of all processes, and the number of rows."""
    sums = torch.cat([rows.sum(dim=0), rows.new_tensor([len(rows)])])
    processes.add(sums)
    count = int(sums[-1])
    mean = sums[:-1] / max(1, count)
    # Not from the sum of squares, which loses the variance where the mean is large.
    squares = (rows - mean).square().sum(dim=0)
    processes.add(squares)
    return mean, squares / max(1, count), count


INITIALIZATIONS: dict[str, Callable[[nn.Linear], None]] = {"fan_in": fan_in, "xavier": xavier}
