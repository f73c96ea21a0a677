"""How well an image and a caption fit, from their vectors in the joint space.

Every similarity is called as `similarity(images, captions)` with vectors (images, dim)
and (captions, dim), and returns scores (images, captions); higher is better.
"""

from torch import Tensor

from fne.ranking.order import Order


def cosine(images: Tensor, captions: Tensor) -> Tensor:
    """The inner product: the cosine, since all vectors have length one."""
    return images @ captions.T


def order(images: Tensor, captions: Tensor) -> Tensor:
    """Minus the squared length of what a caption exceeds its image by, as in Vendrov et al.'s code."""
    scores: Tensor = Order.apply(images, captions)
    return scores


def order_root(images: Tensor, captions: Tensor) -> Tensor:
    """Minus the length of what a caption exceeds its image by, as in the equation and in VSE++.

    Where a caption exceeds its image nowhere, the root has no gradient; here it is 0.
    """
    squared = -order(images, captions)
    # The gradient of a root at 0 is infinite, and infinity times 0 is NaN: take it at 1 and drop it.
    inside = squared == 0
    return -squared.masked_fill(inside, 1).sqrt().masked_fill(inside, 0)


SIMILARITIES = {"cosine": cosine, "order": order, "order_root": order_root}
