"""From image embeddings to concepts: one logit per concept.

A concept head is linear or has one hidden layer. The biases of its last layer start at the log odds of
the concepts and its weights at zero, so that before training each concept has its
training frequency. Concepts are rare: with biases of zero, most of the first epochs only move the biases.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from fne.core.errors import InputError


class Scaling(nn.Module):
    """Scales image rows with fitted values: (rows - shift) * scale, then to length one if `unit`."""

    shift: Tensor
    scale: Tensor

    def __init__(self, shift: Tensor, scale: Tensor, unit: bool = False) -> None:
        super().__init__()
        self.register_buffer("shift", shift)
        self.register_buffer("scale", scale)
        self.unit = unit

    def forward(self, rows: Tensor) -> Tensor:
        """Scale rows (images, features)."""
        scaled = (rows - self.shift) * self.scale
        return nn.functional.normalize(scaled) if self.unit else scaled


def standardized(mean: Tensor, deviation: Tensor) -> Scaling:
    """Mean 0 and deviation 1 over the training rows; a feature that never varies becomes 0."""
    scale = torch.where(deviation > 0, 1 / deviation.clamp(min=torch.finfo(deviation.dtype).tiny), 0.0)
    return Scaling(mean, scale)


def unit(mean: Tensor, deviation: Tensor) -> Scaling:
    """Rows of length one; a row of zeros stays so."""
    return Scaling(torch.zeros_like(mean), torch.ones_like(deviation), unit=True)


def raw(mean: Tensor, deviation: Tensor) -> Scaling:
    """Rows as they are."""
    return Scaling(torch.zeros_like(mean), torch.ones_like(deviation))


class ConceptHead(nn.Module):
    """Concept logits (images, concepts) from image rows (images, features)."""

    def __init__(self, features: int, concepts: int, hidden: int | None = None) -> None:
        """Make a linear concept head, or one with a layer of `hidden` rectified units."""
        super().__init__()
        self.hidden = nn.Identity() if hidden is None else _rectified(features, hidden)
        self.width = features if hidden is None else hidden
        self.concepts = nn.Linear(self.width, concepts)
        nn.init.zeros_(self.concepts.weight)
        nn.init.zeros_(self.concepts.bias)

    def start(self, log_odds: Tensor) -> None:
        """Set the biases of the concepts (concepts)."""
        with torch.no_grad():
            self.concepts.bias.copy_(log_odds)

    def encode(self, rows: Tensor) -> Tensor:
        """Return what the concepts are predicted from: the hidden layer, or the rows (images, width)."""
        encoded: Tensor = self.hidden(rows)
        return encoded

    def classify(self, encoded: Tensor) -> Tensor:
        """Return the logits (images, concepts) from what `encode` returns."""
        logits: Tensor = self.concepts(encoded)
        return logits

    def forward(self, rows: Tensor) -> Tensor:
        """Return the logits of image rows (images, concepts)."""
        return self.classify(self.encode(rows))


class UserTagReader(nn.Module):
    """Concept logits from the noisy tags that users gave (images, user tags): one rectified layer."""

    def __init__(self, user_tags: int, hidden: int, concepts: int) -> None:
        super().__init__()
        self.hidden = _rectified(user_tags, hidden)
        self.concepts = nn.Linear(hidden, concepts)
        nn.init.zeros_(self.concepts.weight)
        nn.init.zeros_(self.concepts.bias)

    def forward(self, user_tags: Tensor) -> Tensor:
        """Return logits (images, concepts) from 0/1 user tags (images, user tags)."""
        logits: Tensor = self.concepts(self.hidden(user_tags))
        return logits


def log_odds(counts: np.ndarray, images: int) -> Tensor:
    """Return the log odds of each concept in the training images (concepts).

    A concept that all images have, or none, has infinite odds. It counts as if half an image were different.

    Example:
        >>> log_odds(np.array([1, 2, 4]), 4)
        tensor([-1.0986,  0.0000,  1.9459])
    """
    if images < 1:
        raise InputError("concept_head: there are no training images to take concept frequencies from")
    if counts.min(initial=0) < 0 or counts.max(initial=0) > images:
        raise InputError(
            f"concept_head: concept counts are {counts.min()} to {counts.max()}; "
            f"they must be from 0 to {images}, the number of training images"
        )
    held = np.clip(counts.astype(float), 0.5, images - 0.5)
    return torch.from_numpy(np.log(held / (images - held))).float()


def add_logits(image: Tensor, user_tags: Tensor) -> Tensor:
    """Return probabilities from the sum of the logits of image and user tags."""
    return torch.sigmoid(image + user_tags)


def add_probabilities(image: Tensor, user_tags: Tensor) -> Tensor:
    """Return the sum of the probabilities of image and user tags, at most 1."""
    return (torch.sigmoid(image) + torch.sigmoid(user_tags)).clamp(max=1)


def _rectified(features: int, hidden: int) -> nn.Module:
    layer = nn.Linear(features, hidden)
    nn.init.xavier_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)
    return nn.Sequential(layer, nn.ReLU())


ROWS: dict[str, Callable[[Tensor, Tensor], Scaling]] = {
    "raw": raw,
    "standardized": standardized,
    "unit": unit,
}
USER_TAG_SUMS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "logits": add_logits,
    "probabilities": add_probabilities,
}
