"""Ranking losses over one batch of scores.

Every loss is called as `loss(scores, positives, margin)`. `scores` (images, captions) is
square and its diagonal holds the true pairs; `positives`, a mask of the same shape,
marks every pair that must not serve as a contrast, the diagonal included.
"""

from torch import Tensor


def sum_hinge(scores: Tensor, positives: Tensor, margin: float) -> Tensor:
    """Every wrong caption of an image and every wrong image of a caption inside the margin counts."""
    by_image, by_caption = _violations(scores, positives, margin)
    return by_image.sum() + by_caption.sum()


def max_hinge(scores: Tensor, positives: Tensor, margin: float) -> Tensor:
    """Only each image's worst wrong caption and each caption's worst wrong image count."""
    by_image, by_caption = _violations(scores, positives, margin)
    return by_image.amax(dim=1).sum() + by_caption.amax(dim=0).sum()


def _violations(scores: Tensor, positives: Tensor, margin: float) -> tuple[Tensor, Tensor]:
    true = scores.diagonal()
    by_image = (margin - true[:, None] + scores).clamp(min=0)  # wrong captions of the row's image
    by_caption = (margin - true[None, :] + scores).clamp(min=0)  # wrong images of the column's caption
    return by_image.masked_fill(positives, 0), by_caption.masked_fill(positives, 0)


LOSSES = {"max_hinge": max_hinge, "sum_hinge": sum_hinge}
