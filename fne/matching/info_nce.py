"""InfoNCE: every caption of a batch competes for an image, and every image for a caption.

The loss is the cross entropy of a softmax over scores divided by a temperature, in both directions, summed
over the pairs of the batch. A learned temperature is one weight, the logarithm of its inverse, as in CLIP.

Each process computes the scores of its own images with all captions, and of all images with its own captions.
So with several processes, none of them holds the square matrix of a large batch.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from fne.core.distributed_layers import Step
from fne.matching import settings as keys

# The lowest temperature that is learned, as in CLIP: below it a few pairs decide everything.
LOWEST = 0.01


class InfoNCE(nn.Module):
    """Cross entropy of images among captions and of captions among images."""

    def __init__(self, settings: keys.InfoNCE, anchors: tuple[float, float] = (1.0, 1.0)) -> None:
        super().__init__()
        self.settings = settings
        self.anchors = anchors  # the weights of the directions with images and with captions as anchors
        if settings.learned:
            self.log_inverse = nn.Parameter(torch.tensor(-math.log(settings.temperature)))

    @property
    def temperature(self) -> Tensor | float:
        """By what scores are divided."""
        return (-self.log_inverse).exp() if self.settings.learned else self.settings.temperature

    def forward(
        self,
        images: Tensor,
        captions: Tensor,
        similarity: Callable[[Tensor, Tensor], Tensor],
        numbers: Tensor,
        step: Step,
    ) -> Tensor:
        """Return this process's part of the loss: the sum of all processes is that of the whole batch.

        Args:
            images: vectors (pairs, dim) of all processes, as for `captions`.
            numbers: the image of each pair (pairs). Pairs of one image are not negatives of each other.
        """
        if self.settings.learned:
            with torch.no_grad():
                self.log_inverse.clamp_(max=-math.log(LOWEST))
        own, share = step.rows, step.processes.share_gradient
        images, captions = share(images), share(captions)
        of_images = similarity(images[own], captions) / self.temperature  # (own, pairs)
        alone = step.processes.count == 1
        of_captions = of_images if alone else similarity(images, captions[own]) / self.temperature
        same = numbers[own, None] == numbers  # (own, pairs)
        truth = torch.arange(own.start, own.stop, device=same.device)
        total = images.new_zeros(())
        for weight, scores in zip(self.anchors, (of_images, of_captions.T), strict=True):
            if weight:
                total = total + weight * self._cross_entropy(scores, same, truth)
        return total

    def _cross_entropy(self, scores: Tensor, same: Tensor, truth: Tensor) -> Tensor:
        """Return the sum over anchors (anchors, answers), of which `truth` is the own answer of each."""
        if self.settings.positives == "all":
            true = scores.masked_fill(~same, 0).sum(dim=1) / same.sum(dim=1)
            return (scores.logsumexp(dim=1) - true).sum()
        others = same.scatter(1, truth[:, None], False)
        scores = scores.masked_fill(others, -torch.inf)
        return nn.functional.cross_entropy(scores, truth, reduction="sum")
