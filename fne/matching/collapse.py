"""The watch for runs that do not start.

A model that maps all images and captions to one point has the same score everywhere, and
every contrast violates the margin by exactly the margin. Losses of the worst contrasts
can settle there for ever: with the worst one, at twice the margin a pair, that is, at
2 x batch x margin.
"""

from collections.abc import Sequence

import numpy as np

from fne.matching.phases import Phase
from fne.matching.progress import Point
from fne.ranking.chance import chance_of_recall
from fne.ranking.metrics import RECALLS

# The paper counts a run as started when the sum of its six validation recalls is above this.
STARTED = 10.0
# With few validation images guessing alone gets there.
TIMES_CHANCE = 1.5
# How close to the loss of a collapsed model counts as being there.
NEAR = 0.03
# How many validations in a row make it worth saying.
IN_A_ROW = 2


def has_started(rsum: float, captions_per_image: np.ndarray) -> bool:
    """Tell whether a validation rsum is that of a model that learns."""
    images, captions = len(captions_per_image), int(captions_per_image.sum())
    guessing = sum(
        chance_of_recall(k, captions, captions_per_image) + chance_of_recall(k, images, np.ones(1, dtype=int))
        for k in RECALLS
    )
    return rsum > max(STARTED, TIMES_CHANCE * guessing)


def flat_loss(phase: Phase, batch: int, top_k: int) -> float | None:
    """Return the loss a pair of a collapsed model, or None under a loss that does not settle there."""
    contrasts = {"max_hinge": 1, "top_k_hinge": min(top_k, batch - 1)}.get(phase.loss)
    return 2 * phase.margin * contrasts if contrasts else None


def is_flat(points: Sequence[Point], flat: float) -> bool:
    """Tell whether the last validations of a phase, whose `points` these are, sit at the loss `flat`."""
    recent = points[-IN_A_ROW:]
    return len(recent) == IN_A_ROW and all(abs(point.loss / flat - 1) < NEAR for point in recent)


def warning(phase: Phase, flat: float) -> str:
    """Say that training does not start, and what helps."""
    return (
        f"training does not start: the loss stays at {flat:g} a pair, that of a model that maps everything "
        f"to one point. Start with a sum phase (train.loss=[sum_hinge,{phase.loss}]), or try a lower "
        "train.learning_rate or another train.seed"
    )
