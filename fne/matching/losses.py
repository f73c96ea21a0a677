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

from torch import Tensor

from fne.matching.hard_negatives import LossChoices, mined_loss

# Called with scores (images, captions), positives (images, captions), truth (captions) and the margin.
RankingLoss = Callable[[Tensor, Tensor, Tensor, float], Tensor]


def bind(name: str, choices: LossChoices) -> RankingLoss:
    """Return a loss with its choices bound; it ignores those that it does not need."""
    return partial(mined_loss, name, choices)
