"""Large gradients on the CPU in the memory of the previous step's.

For each new tensor of this size the system must map and clear pages, which took 5 % of a training step.
The trainer calls `release` where others call `zero_grad`: the gradients of weights of these functions
are put aside, and the next backward pass writes into them.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from fne.core.device import is_gpu


def release(parameters: Iterable[nn.Parameter]) -> None:
    """Remove all gradients; keep the memory of those that `linear` or `look_up` will write again."""
    for each in parameters:
        if hasattr(each, "released"):
            each.released = each.grad
        each.grad = None


def linear(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return what `torch.nn.functional.linear` returns."""
    half = torch.is_autocast_enabled(rows.device.type)
    if half or is_gpu(rows.device) or not weight.requires_grad:
        return functional.linear(rows, weight, bias)
    mapped: Tensor = _Linear.apply(rows, weight, bias)
    return mapped


def look_up(table: Tensor, distinct: Tensor) -> Tensor:
    """Return the rows of a table with these numbers, none of them twice."""
    if is_gpu(table.device) or not table.requires_grad:
        return table[distinct]
    rows: Tensor = _LookUp.apply(table, distinct)
    return rows


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(rows, weight)
        ctx.weight = weight
        return functional.linear(rows, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_mapped: Tensor) -> tuple[Tensor | None, ...]:
        rows, weight = ctx.saved_tensors
        return (
            of_mapped @ weight if ctx.needs_input_grad[0] else None,
            torch.mm(of_mapped.T, rows, out=_memory(ctx.weight)).detach(),
            of_mapped.sum(dim=0) if ctx.needs_input_grad[2] else None,
        )


class _LookUp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, distinct: Tensor) -> Tensor:
        ctx.save_for_backward(distinct)
        ctx.table = table
        return table[distinct]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_rows: Tensor) -> tuple[Tensor, None]:
        (distinct,) = ctx.saved_tensors
        return _memory(ctx.table).zero_().index_copy_(0, distinct, of_rows).detach(), None


def _memory(weight: Tensor) -> Tensor:
    """Return memory for a gradient: what was released, but only once per step."""
    memory: Tensor | None = getattr(weight, "released", None)
    weight.released = None  # type: ignore[attr-defined]
    return torch.empty_like(weight) if memory is None else memory
