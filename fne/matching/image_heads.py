"""Image heads: maps from image embeddings to the joint space.

Every head is called as `head(features, embed_dim, settings)` and returns a module that maps
(images, features) to (images, embed_dim). The module is called as `module(rows, step)`, where `step`
is a `fne.core.distributed_layers.Step` while training. `settings` is the head's block of `train`, or
None if it has none.
"""

from collections.abc import Callable

from torch import Tensor, nn

from fne.core import products
from fne.core.distributed_layers import Step
from fne.matching.branches import dual_path, mlp, mlp_bn_first


class Linear(nn.Linear):
    """One linear map, which needs no step."""

    def forward(self, input: Tensor, step: Step | None = None) -> Tensor:  # noqa: A002
        """Map (images, features) to (images, embed_dim)."""
        return products.linear(input, self.weight, self.bias)


def linear(features: int, embed_dim: int, settings: None) -> nn.Module:
    """One linear map without a bias, as described in the paper."""
    layer = Linear(features, embed_dim, bias=False)
    nn.init.xavier_uniform_(layer.weight)
    return layer


def linear_bias(features: int, embed_dim: int, settings: None) -> nn.Module:
    """One linear map with a bias that is initialized to zero, as in the paper's published code."""
    layer = Linear(features, embed_dim)
    nn.init.xavier_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


IMAGE_HEADS: dict[str, Callable[..., nn.Module]] = {
    "dual_path": dual_path,
    "linear": linear,
    "linear_bias": linear_bias,
    "mlp": mlp,
    "mlp_bn_first": mlp_bn_first,
}
