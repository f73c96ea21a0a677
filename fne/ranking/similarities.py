"""How well an image and a caption fit, from their vectors in the joint space.

Every similarity is called as `similarity(images, captions)` with vectors (images, dim)
and (captions, dim), and returns scores (images, captions); higher is better.
"""

import torch
from torch import Tensor


def cosine(images: Tensor, captions: Tensor) -> Tensor:
    """The inner product: the cosine, since all vectors have length one."""
    return images @ captions.T


def order(images: Tensor, captions: Tensor) -> Tensor:
    """Minus the squared amount by which a caption exceeds its image in any dimension.

    A caption is more general than its image, so in the order of the joint space it
    should lie below it everywhere (Vendrov et al.). One image at a time, so that no
    tensor of (images, captions, dim) is formed.
    """
    return torch.stack([-(captions - image).clamp(min=0).square().sum(dim=1) for image in images])


SIMILARITIES = {"cosine": cosine, "order": order}
