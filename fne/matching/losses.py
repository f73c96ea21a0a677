"""Ranking losses over one batch of scores.

Every loss is called as `loss(scores, positives, truth, margin)`, as `fne.matching.hard_negatives` describes
them. Which contrasts a loss counts is its name; how they are added up is in `LossChoices`, which
`bind` takes. A loss's own settings, the search for the hardest contrasts, are a block of `params.yaml`.

A contrast violates the margin twice: as a wrong caption of its image, and as a wrong
image of its caption. Losses that count only the hardest contrasts search either axis:
`hardest="query"` finds the hardest wrong answers to each query, as Equation 4 says;
`hardest="candidate"` finds the queries that each wrong answer disturbs most, as the paper's
published code does.
"""

from collections.abc import Callable
from functools import partial
from typing import Annotated

from pydantic import Field
from torch import Tensor

from fne.core.params import Section, one_of
from fne.core.variants import Variant
from fne.matching.hard_negatives import AXES, LossChoices, mined_loss

# Called with scores (images, captions), positives (images, captions), truth (captions) and the margin.
RankingLoss = Callable[[Tensor, Tensor, Tensor, float], Tensor]


class MaxHinge(Section):
    """The settings of `max_hinge`."""

    hardest: Annotated[str, one_of(AXES), Field(examples=["query"])]


class TopKHinge(MaxHinge):
    """The settings of `top_k_hinge`."""

    k: Annotated[int, Field(ge=1, examples=[10])]


def sum_hinge(choices: LossChoices) -> RankingLoss:
    """Every wrong caption of an image and every wrong image of a caption inside the margin counts."""
    return partial(mined_loss, "sum_hinge", choices)


def max_hinge(choices: LossChoices) -> RankingLoss:
    """Only each image's worst wrong caption and each caption's worst wrong image count."""
    return partial(mined_loss, "max_hinge", choices)


def top_k_hinge(choices: LossChoices) -> RankingLoss:
    """Only the `k` worst wrong captions of an image and the `k` worst wrong images of a caption count.

    If there are fewer, all of them count.
    """
    return partial(mined_loss, "top_k_hinge", choices)


def hard_hinge(choices: LossChoices) -> RankingLoss:
    """Only wrong answers that score at least as high as the true one count."""
    return partial(mined_loss, "hard_hinge", choices)


def semi_hard_hinge(choices: LossChoices) -> RankingLoss:
    """Only wrong answers inside the margin that score less than the true one count."""
    return partial(mined_loss, "semi_hard_hinge", choices)


def bind(name: str, choices: LossChoices) -> RankingLoss:
    """Return a loss with its choices bound.

    Args:
        name: a key of `LOSSES`.
        choices: what the loss needs beyond its margin; it ignores what it does not need.
    """
    return LOSSES[name].make(choices)


LOSSES: dict[str, Variant[RankingLoss]] = {
    "hard_hinge": Variant(hard_hinge),
    "max_hinge": Variant(max_hinge, MaxHinge),
    "semi_hard_hinge": Variant(semi_hard_hinge),
    "sum_hinge": Variant(sum_hinge),
    "top_k_hinge": Variant(top_k_hinge, TopKHinge),
}
