"""Mining: which negatives of a batch a ranking loss counts, and how it adds them up.

`scores` (images, captions) need not be square. Caption c belongs to the image in row
`truth[c]`, and `scores[truth[c], c]` is its true score. `positives`, a mask of the shape of
`scores`, marks every pair that must not serve as a negative, the true pairs included.

A batch has negatives in two directions. With an image as the anchor, they are wrong captions:
a mask (captions, captions) with one row per pair and one column per wrong caption. With a caption
as the anchor, they are wrong images: a mask (images, captions). `hardest="query"` searches the hardest wrong
answers to each query, as Equation 4 says; `hardest="candidate"` searches the queries that each wrong answer
disturbs most, as the paper's published code does. A negative with score `wrong` is

- hard if `wrong >= true`: a tie is hard, so that a collapsed model is not without negatives;
- semi-hard if `wrong < true` and `margin - true + wrong > 0`;
- easy otherwise. Hard and semi-hard negatives are the violating ones.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

# The axes that are searched for the hardest negatives, for image anchors and for caption anchors:
# the wrong answers to each query, or the queries for which each wrong answer scores highest.
AXES = {"query": (1, 0), "candidate": (0, 1)}


@dataclass(frozen=True)
class Direction:
    """The negatives of one kind of anchor."""

    wrong: Tensor  # scores of the negatives
    true: Tensor  # the true scores, broadcast to the shape of `wrong`
    negative: Tensor  # what may be a negative: a mask of the shape of `wrong`
    axis: int  # the axis that is searched for the hardest
    by_score: bool  # the hardest have the largest scores; otherwise the largest violations

    def violations(self, margin: float) -> Tensor:
        """Return how far each negative violates the margin, 0 where it does not."""
        return (margin - self.true + self.wrong).clamp(min=0).masked_fill(~self.negative, 0)


@dataclass(frozen=True)
class LossChoices:
    """What a ranking loss needs beyond its name and its margin."""

    hardest: str = "query"  # a key of `AXES`
    k: int = 1  # the number of negatives per anchor in `top_k_hinge`
    reduce: str = "sum"  # a key of `REDUCTIONS`, applied to each direction by itself
    image_anchors: float = 1.0  # the weight of the direction with images as anchors
    caption_anchors: float = 1.0


def mined_loss(
    name: str, choices: LossChoices, scores: Tensor, positives: Tensor, truth: Tensor, margin: float
) -> Tensor:
    """Return the loss of the negatives that `name` counts; 0 with gradient 0 where there are none."""
    mine, values = MINERS[name]
    total = scores.new_zeros(())
    weights = (choices.image_anchors, choices.caption_anchors)
    for direction, weight in zip(
        negatives_of(scores, positives, truth, choices.hardest), weights, strict=True
    ):
        if weight:
            counted = values(direction, margin, choices.k)
            slots = REDUCTIONS[choices.reduce](counted, partial(mine, direction, margin, choices.k))
            total = total + weight * (counted.sum() / slots)
    return total


def collapsed_loss(name: str, choices: LossChoices, positives: Tensor, truth: Tensor, margin: float) -> float:
    """Return the loss of a model that gives all pairs the same score: none of its negatives is semi-hard."""
    scores = torch.zeros(positives.shape, dtype=torch.float64, device=positives.device)
    return mined_loss(name, choices, scores, positives, truth, margin).item()


def negatives_of(
    scores: Tensor, positives: Tensor, truth: Tensor, hardest: str
) -> tuple[Direction, Direction]:
    """Return the negatives of image anchors, and those of caption anchors."""
    true = scores[truth, torch.arange(len(truth), device=truth.device)]  # (captions)
    image_axis, caption_axis = AXES[hardest]
    # The true score is the same for all answers to a query, so there the order of the scores is that of
    # the violations; the scores have no rounding errors.
    by_score = hardest == "query"
    return (
        Direction(scores[truth], true[:, None], ~positives[truth], image_axis, by_score),
        Direction(scores, true[None, :], ~positives, caption_axis, by_score),
    )


def _violating(direction: Direction, margin: float, k: int) -> Tensor:
    """All that are inside the margin (Eq. 1 of the FNE paper)."""
    return (margin - direction.true + direction.wrong > 0) & direction.negative


def _hard(direction: Direction, margin: float, k: int) -> Tensor:
    """Those that score at least as high as the true pair."""
    return (direction.wrong >= direction.true) & direction.negative


def _semi_hard(direction: Direction, margin: float, k: int) -> Tensor:
    """Those that score lower than the true pair, but inside the margin."""
    return _violating(direction, margin, k) & ~_hard(direction, margin, k)


def _hardest(direction: Direction, margin: float, k: int) -> Tensor:
    """The `k` hardest ones."""
    wrong = direction.wrong if direction.by_score else margin - direction.true + direction.wrong
    k = min(k, wrong.shape[direction.axis])
    best = wrong.masked_fill(~direction.negative, -torch.inf).topk(k, dim=direction.axis).indices
    chosen = torch.zeros_like(direction.negative).scatter(direction.axis, best, True)
    return chosen & direction.negative


def _single_hardest(direction: Direction, margin: float, k: int) -> Tensor:
    """The hardest one (Eq. 4 of the FNE paper)."""
    return _hardest(direction, margin, 1)


def _all_values(direction: Direction, margin: float, k: int) -> Tensor:
    return direction.violations(margin)


def _values_of(mine: "Rule") -> "Rule":
    return lambda direction, margin, k: direction.violations(margin).masked_fill(
        ~mine(direction, margin, k), 0
    )


def _largest_value(direction: Direction, margin: float, k: int) -> Tensor:
    return direction.violations(margin).amax(dim=direction.axis)


def _largest_values(direction: Direction, margin: float, k: int) -> Tensor:
    violations = direction.violations(margin)
    return violations.topk(min(k, violations.shape[direction.axis]), dim=direction.axis).values


# Each reduction is called with the violations that count and with a function that returns the mask of the
# selected negatives, and returns the number by which their sum is divided.
REDUCTIONS: dict[str, Callable[[Tensor, Callable[[], Tensor]], Tensor | int]] = {
    "sum": lambda counted, mask: 1,
    "mean": lambda counted, mask: mask().sum().clamp(min=1),
    "mean_violating": lambda counted, mask: (counted > 0).sum().clamp(min=1),
}

# A function that returns the mask of the selected negatives, and one that returns their violations in
# any shape, zeros included: the sum of the latter is the sum over the mask.
Rule = Callable[[Direction, float, int], Tensor]
MINERS: dict[str, tuple[Rule, Rule]] = {
    "hard_hinge": (_hard, _values_of(_hard)),
    "max_hinge": (_single_hardest, _largest_value),
    "semi_hard_hinge": (_semi_hard, _values_of(_semi_hard)),
    "sum_hinge": (_violating, _all_values),
    "top_k_hinge": (_hardest, _largest_values),
}
