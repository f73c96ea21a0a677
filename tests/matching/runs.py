"""Schedules, and checkpoints that are kept in memory."""

import copy
import json

from fne.matching.run import Schedule


def schedule(*phases, **choices):
    """A schedule with the paper's choices, for the small data set."""
    usual = {"seed": 0, "batch": 4, "captions": "one", "optimizer": "adam", "clip": 2.0, "clip_by": "global"}
    more = {"precision": "float32", "validate_every": 0, "hardest": "query", "top_k": 2}
    return Schedule(list(phases), **(usual | more | choices))


class Kept:
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
