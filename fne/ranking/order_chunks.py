"""The order similarity in plain torch, for any device: chunks of images, recomputed for the gradient.

The compiled loops of `fne.ranking.order_loops` compute the same on the CPU, and are
tested against this.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

# Values of an intermediate (images, captions, dim): 64 MB in float32.
VALUES = 2**24


def score(images: Tensor, captions: Tensor) -> Tensor:
    """Return the scores (images, captions)."""
    scores = images.new_empty(len(images), len(captions))
    for part, excess in _excess(images, captions):
        scores[part] = -excess.square_().sum(dim=2)
    return scores


def gradients(images: Tensor, captions: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of the scores' sum, weighted with (images, captions), by images and captions."""
    of_images, of_captions = torch.empty_like(images), torch.zeros_like(captions)
    for part, excess in _excess(images, captions):
        excess *= 2 * weights[part, :, None]
        of_images[part] = excess.sum(dim=1)
        of_captions -= excess.sum(dim=0)
    return of_images, of_captions


def _excess(images: Tensor, captions: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Yield chunks of images and what the captions exceed them by (chunk, captions, dim)."""
    size = max(1, VALUES // max(1, captions.numel()))
    for start in range(0, len(images), size):
        part = slice(start, start + size)
        yield part, (captions[None] - images[part, None]).clamp_(min=0)
