"""Matrix products in float32 on the CPU, by oneDNN, which every build of torch for CPUs has.

torch calls MKL for them, which reaches less than half of oneDNN's speed on CPUs of AMD. The operator is the
one to which `torch.compile` lowers fully connected layers. Results and gradients are those of torch up to
rounding. For all other devices and types, torch computes them.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from fne.core.device import is_gpu

_AVAILABLE = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]


class Linear(nn.Linear):
    """A fully connected layer."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """Map (…, inputs) to (…, outputs)."""
        return linear(input, self.weight, self.bias)


def use_fast_linear(model: nn.Module) -> None:
    """Turn the fully connected layers of a model of others into `Linear`."""
    for module in model.modules():
        if type(module) is nn.Linear:
            module.__class__ = Linear


def linear(rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return what `torch.nn.functional.linear` returns."""
    fast = _AVAILABLE and rows.dtype == weight.dtype == torch.float32 and not is_gpu(rows.device)
    odd = rows.dim() < 2 or not rows.numel() or not weight.numel()
    if not fast or odd or torch.is_autocast_enabled("cpu"):
        return functional.linear(rows, weight, bias)
    with_gradient = rows.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad)
    if torch.is_grad_enabled() and with_gradient:
        mapped: Tensor = _Linear.apply(rows, weight, bias)
        return mapped
    return _linear(rows, weight, bias)


def product(left: Tensor, right: Tensor) -> Tensor:
    """Return `left @ right` of two matrices."""
    return linear(left, right.T)


def _linear(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    mapped: Tensor = torch.ops.mkldnn._linear_pointwise(_dense(rows), _dense(weight), bias, "none", [], "")
    return mapped


def _dense(matrix: Tensor) -> Tensor:
    """Return a matrix, or a copy if it has gaps as slices of columns have: oneDNN needs minutes for them."""
    return matrix if matrix.is_contiguous() or matrix.mT.is_contiguous() else matrix.contiguous()


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(rows, weight)
        return _linear(rows, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_mapped: Tensor) -> tuple[Tensor | None, ...]:
        rows, weight = ctx.saved_tensors
        flat = of_mapped.flatten(0, -2)
        of_rows, of_weight, of_bias = ctx.needs_input_grad
        return (
            linear(of_mapped, weight.T) if of_rows else None,
            linear(flat.T, rows.flatten(0, -2).T) if of_weight else None,
            flat.sum(dim=0) if of_bias else None,
        )
