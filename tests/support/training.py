"""Matching runs on a small data set, and checkpoints that are kept in memory."""

import copy
import json
from dataclasses import dataclass
from functools import partial

from fne.core.processes import ALONE
from fne.matching.data import PairDraw
from fne.matching.hard_negatives import LossChoices
from fne.matching.model import new_matcher
from fne.matching.task import MatchingData, MatchingOptions, MatchingTask, Objective
from fne.training.best_epoch import Phase
from fne.training.loop import Schedule, Trainer
from fne.training.optimizers import OPTIMIZERS


@dataclass(frozen=True)
class MatchingPhase:
    """A phase of a matching run: its loss and margin, and what the trainer needs."""

    loss: str
    margin: float
    learning_rate: float
    epochs: int
    patience: int


def objective(phase):
    return Objective(phase.loss, LossChoices(k=2), phase.margin)


def optimizer(name="adam"):
    return partial(OPTIMIZERS[name], settings=None)


def schedule(*phases, **choices):
    """A schedule with the paper's choices."""
    usual = {"seed": 0, "optimizer": optimizer(), "clip": 2.0, "clip_by": "global", "validate_every": 0}
    own = [Phase(each.loss, each.learning_rate, each.epochs, each.patience) for each in phases]
    return Schedule(own, **(usual | choices))


def matching_data(pairs, batch=4, captions="one"):
    """The data of a task that is trained and validated on the same pairs."""
    return MatchingData(pairs, pairs, PairDraw(pairs.captioned, 0, batch, captions))


def trainer(
    pairs, shape, *phases, matcher=None, checkpoints=None, processes=ALONE,
    batch=4, captions="one", precision="float32", **choices
):  # fmt: skip
    """A trainer of a matching task on the small data set, which also validates it."""
    matcher = matcher or new_matcher(shape, seed=0)
    objectives = [objective(phase) for phase in phases]
    data = matching_data(pairs, batch=batch, captions=captions)
    options = MatchingOptions(precision=precision, processes=processes)
    task = MatchingTask(matcher, objectives, data, options)
    return Trainer(task, schedule(*phases, **choices), checkpoints, processes)


class MemoryCheckpoints:
    """Checkpoints in memory: all of them, one after every step when `always`."""

    def __init__(self, always=False, start=None):
        self.always = always
        self.saved = [start] if start else []

    def due(self):
        return self.always

    def save(self, progress, tensors):
        copied = {name: value.clone() for name, value in tensors.items()}
        self.saved.append((json.dumps(copy.deepcopy(progress)), copied))

    def load(self):
        if not self.saved:
            return None
        progress, tensors = self.saved[-1]
        return json.loads(progress), tensors
