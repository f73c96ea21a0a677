"""Fully connected layers by oneDNN, which every build of torch for CPUs has.

torch calls MKL for them in float32, which reaches less than half of oneDNN's speed on CPUs of AMD. The
operator is the one to which `torch.compile` lowers them. Values agree up to rounding.
"""

from functools import partial

import torch
from torch import Tensor, nn

from fne.core.device import is_gpu

LINEAR_VERSION = 1  # raised when values change


def use_fast_linear(model: nn.Module, device: torch.device) -> None:
    """Let the fully connected layers of a model that is not trained run on oneDNN, on a CPU."""
    available = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    if is_gpu(device) or not available:
        return
    for module in model.modules():
        if type(module) is nn.Linear and module.weight.dtype == torch.float32:
            module.forward = partial(_linear, module)  # type: ignore[method-assign]


def _linear(layer: nn.Linear, values: Tensor) -> Tensor:
    found: Tensor = torch.ops.mkldnn._linear_pointwise(values, layer.weight, layer.bias, "none", [], "")
    return found
