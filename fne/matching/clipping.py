"""How gradients that are too long are cut.

Every way is called as `clip(parameters, length)`, changes the gradients in place and
returns the length that they had before, all taken together.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn


def by_global_norm(parameters: Iterable[nn.Parameter], length: float) -> Tensor:
    """Scale all gradients alike when together they are longer than `length`."""
    return nn.utils.clip_grad_norm_(parameters, length)


def by_tensor_norm(parameters: Iterable[nn.Parameter], length: float) -> Tensor:
    """Scale each gradient by itself when it is longer than `length`, as the papers' published codes do."""
    lengths = [nn.utils.clip_grad_norm_([each], length) for each in parameters]
    return torch.stack(lengths).square().sum().sqrt()


CLIPS = {"global": by_global_norm, "tensor": by_tensor_norm}
