"""Validation of a matching model, and the detection of collapsed runs.

A model that maps all images and captions to one point has the same score everywhere, and
every negative violates the margin by exactly the margin. Losses of the hardest negatives
can settle there: the sum over the single hardest ones, at twice the margin per pair.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch

from fne.core.errors import InputError
from fne.core.processes import ALONE, Processes
from fne.evaluation.metrics.collapse import CAN_SETTLE
from fne.evaluation.metrics.ranks import Ranking, rank
from fne.evaluation.metrics.recall import retrieval_values
from fne.matching.data import Pairs
from fne.matching.encode import encode_captions, encode_images
from fne.matching.hard_negatives import LossChoices, collapsed_loss
from fne.matching.model import Matcher
from fne.training.best_epoch import Point, Scores

# Losses that can run out of negatives: what these are called, and where all of them are then.
NOTHING_TO_MINE = {"hard_hinge": "hard", "semi_hard_hinge": "semi-hard"}
WHERE_NEGATIVES_ARE = {
    "hard_hinge": "all wrong ones are farther than the true one",
    "semi_hard_hinge": "all wrong ones are either nearer than the true one or outside the margin",
}
BATCHES_WITHOUT_NEGATIVE = 50
# How close to the loss of a collapsed model counts as being there.
NEAR = 0.03
# How many validations in a row are reported.
IN_A_ROW = 2
# An instance loss this close to that of chance has not begun to fall, after this many validations.
NEAR_CHANCE = 0.01
CHANCE_FOR = 5


def rank_pairs(matcher: Matcher, pairs: Pairs, processes: Processes = ALONE) -> Ranking:
    """Rank all captions and images of `pairs` against each other."""
    images = torch.cat(list(encode_images(matcher, pairs, pairs.image_ids, processes)))
    captions = torch.cat(list(encode_captions(matcher, pairs, pairs.caption_ids, processes)))
    return rank(images, captions, torch.from_numpy(pairs.caption_image), matcher.similarity, 0, processes)


def validate(matcher: Matcher, pairs: Pairs, processes: Processes = ALONE, section: str = "train") -> Scores:
    """Rank all captions and images of `pairs` against each other; the main score is rsum."""
    try:
        ranking = rank_pairs(matcher, pairs, processes)
    except ValueError as error:
        raise InputError(f"training stopped: in validation, {error}; lower {section}.learning_rate") from None
    return Scores(retrieval_values(ranking.image_ranks.numpy(), ranking.caption_ranks.numpy()))


def flat_loss(name: str, choices: LossChoices, margin: float, batch_sizes: Sequence[int]) -> float | None:
    """Return the per-pair loss of a collapsed model, or None for a loss that does not settle there.

    Of a mean, it depends on the number of pairs of each batch of an epoch.
    """
    if name not in CAN_SETTLE:
        return None
    total = 0.0
    for size, batches in Counter(batch_sizes).items():
        true_pairs, truth = torch.eye(size, dtype=torch.bool), torch.arange(size)
        total += batches * collapsed_loss(name, choices, true_pairs, truth, margin)
    return total / sum(batch_sizes)


def is_flat(points: Sequence[Point], flat: float) -> bool:
    """Return whether the last validations of a phase, given as `points`, sit at the loss `flat`."""
    recent = points[-IN_A_ROW:]
    return len(recent) == IN_A_ROW and all(abs(point.loss / flat - 1) < NEAR for point in recent)


def stays_at(values: Sequence[float], chance: float) -> bool:
    """Return whether an instance loss, one value per validation, is still that of chance."""
    return len(values) >= CHANCE_FOR and abs(values[-1] / chance - 1) < NEAR_CHANCE


def instance_warning(chance: float) -> str:
    """Return the warning that the instance loss has not begun to fall, with what helps."""
    classes = round(np.exp(chance))
    return (
        f"the instance loss stays at ln({classes:,}) = {chance:.2f}, that of chance: nothing is learned "
        "yet. With many classes the first fall can take many epochs; raise train.learning_rate or "
        "train.classifier_rate, or lower train.instance.dropout"
    )


def collapse_warning(loss: str, flat: float) -> str:
    """Return the warning that a run has collapsed, with what helps."""
    return (
        f"training does not start: the loss stays at {flat:g} per pair, that of a model that maps everything "
        f"to one point. Start with a sum phase (train.loss=[sum_hinge,{loss}]), or try a lower "
        "train.learning_rate or another train.seed"
    )


def mining_warning(loss: str) -> str:
    """Return the warning that a loss has had no negatives for many batches, with what helps."""
    return (
        f"no {NOTHING_TO_MINE[loss]} negative in the last {BATCHES_WITHOUT_NEGATIVE} batches: "
        f"{WHERE_NEGATIVES_ARE[loss]}; start with train.loss=[sum_hinge,{loss}] or raise train.margin"
    )
