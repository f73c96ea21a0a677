"""Maps from image embeddings to the joint space.

Every head is called as `head(features, embed_dim)` and returns a module that maps
(images, features) to (images, embed_dim).
"""

from torch import nn


def linear(features: int, embed_dim: int) -> nn.Module:
    """One linear map without a bias, as the paper says."""
    layer = nn.Linear(features, embed_dim, bias=False)
    nn.init.xavier_uniform_(layer.weight)
    return layer


def linear_bias(features: int, embed_dim: int) -> nn.Module:
    """One linear map with a bias, zero at first, as in the paper's published code."""
    layer = nn.Linear(features, embed_dim)
    nn.init.xavier_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


IMAGE_HEADS = {"linear": linear, "linear_bias": linear_bias}
