"""Maps from image embeddings to the joint space.

Every head is called as `head(features, embed_dim)` and returns a module that maps
(images, features) to (images, embed_dim).
"""

from torch import nn


def linear(features: int, embed_dim: int) -> nn.Module:
    """One linear map without a bias, as the paper's."""
    layer = nn.Linear(features, embed_dim, bias=False)
    nn.init.xavier_uniform_(layer.weight)
    return layer


IMAGE_HEADS = {"linear": linear}
