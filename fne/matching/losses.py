"""Ranking losses over one batch of scores.

Every loss is called as `loss(scores, positives, margin)`. `scores` (images, captions) is
square and its diagonal holds the true pairs; `positives`, a mask of the same shape,
marks every pair that must not serve as a contrast, the diagonal included. What else a
loss needs is bound with `bind` when it is chosen.

A contrast violates the margin twice: as a wrong caption of its image, and as a wrong
image of its caption. Losses that count only the worst look for it along either axis:
`hardest="query"` finds the worst wrong answers to each query, as Equation 4 says;
`hardest="candidate"` the queries that each wrong answer disturbs most, as the paper's
published code does.
"""

import inspect
from collections.abc import Callable
from functools import partial

from torch import Tensor

Loss = Callable[[Tensor, Tensor, float], Tensor]

# The axes to search for violations by image and by caption.
HARDEST = {"query": (1, 0), "candidate": (0, 1)}


def sum_hinge(scores: Tensor, positives: Tensor, margin: float) -> Tensor:
    """Every wrong caption of an image and every wrong image of a caption inside the margin counts."""
    by_image, by_caption = _violations(scores, positives, margin)
    return by_image.sum() + by_caption.sum()


def max_hinge(scores: Tensor, positives: Tensor, margin: float, *, hardest: str) -> Tensor:
    """Only each image's worst wrong caption and each caption's worst wrong image count."""
    by_image, by_caption = _violations(scores, positives, margin)
    axis, other = HARDEST[hardest]
    return by_image.amax(dim=axis).sum() + by_caption.amax(dim=other).sum()


def top_k_hinge(scores: Tensor, positives: Tensor, margin: float, *, hardest: str, k: int) -> Tensor:
    """Only the `k` worst wrong captions of an image and the `k` worst wrong images of a caption count.

    If there are fewer, all of them count.
    """
    by_image, by_caption = _violations(scores, positives, margin)
    axis, other = HARDEST[hardest]
    k = min(k, len(scores))
    return by_image.topk(k, dim=axis).values.sum() + by_caption.topk(k, dim=other).values.sum()


def bind(name: str, hardest: str, k: int) -> Loss:
    """Return a loss with what it needs beyond the scores, and nothing that it does not.

    Args:
        name: a key of `LOSSES`.
        hardest: a key of `HARDEST`.
        k: how many count in `top_k_hinge`.
    """
    loss = LOSSES[name]
    taken = inspect.signature(loss).parameters
    offered = {"hardest": hardest, "k": k}
    return partial(loss, **{key: value for key, value in offered.items() if key in taken})


def _violations(scores: Tensor, positives: Tensor, margin: float) -> tuple[Tensor, Tensor]:
    true = scores.diagonal()
    by_image = (margin - true[:, None] + scores).clamp(min=0)  # wrong captions of the row's image
    by_caption = (margin - true[None, :] + scores).clamp(min=0)  # wrong images of the column's caption
    return by_image.masked_fill(positives, 0), by_caption.masked_fill(positives, 0)


LOSSES: dict[str, Callable[..., Tensor]] = {
    "max_hinge": max_hinge,
    "sum_hinge": sum_hinge,
    "top_k_hinge": top_k_hinge,
}
