"""Ranking losses over one batch of scores.

Every loss is called as `loss(scores, positives, truth, margin)`, as `fne.matching.hard_negatives` describes
them. Which negatives a loss counts is its name, a key of `MINERS` there; how they are added up is in
`LossChoices`.

A negative violates the margin twice: as a wrong caption of its image, and as a wrong image of its caption.
Losses of the hardest negatives search either axis: `hardest="query"` finds the hardest wrong answers to each
query, as Equation 4 says; `hardest="candidate"` finds the queries that each wrong answer disturbs most, as
the paper's published code does.
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


def bind(name: str, choices: LossChoices) -> RankingLoss:
    """Return a loss with its choices bound; it ignores those that it does not need."""
    return LOSSES[name].make(choices)


def _ranking(name: str) -> Callable[[LossChoices], RankingLoss]:
    return lambda choices: partial(mined_loss, name, choices)


LOSSES: dict[str, Variant[RankingLoss]] = {
    # Only wrong answers that score at least as high as the true one count.
    "hard_hinge": Variant(_ranking("hard_hinge")),
    # Only each image's worst wrong caption and each caption's worst wrong image count.
    "max_hinge": Variant(_ranking("max_hinge"), MaxHinge),
    # Only wrong answers inside the margin that score less than the true one count.
    "semi_hard_hinge": Variant(_ranking("semi_hard_hinge")),
    # Every wrong caption of an image and every wrong image of a caption inside the margin counts.
    "sum_hinge": Variant(_ranking("sum_hinge")),
    # Only the `k` worst wrong captions of an image and the `k` worst wrong images of a caption count.
    "top_k_hinge": Variant(_ranking("top_k_hinge"), TopKHinge),
}
