"""Phases of training and the position within them: all of a run that is not a tensor.

`params.yaml` writes a key of the phases as one value for all of them, or as a list with one value per phase:
`loss: [sum_hinge, max_hinge]` trains with the sum of violations first, and with the hardest one afterwards.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Phase:
    """One phase of training; what is minimized in it is the task's concern."""

    title: str  # the name of its objective, for the progress bar
    learning_rate: float
    epochs: int  # at most
    patience: int  # how many epochs without a better validation end it
    iterations: int = 0  # at most; 0: as many as the epochs have

    def steps(self, per_epoch: int) -> int:
        """Return the number of steps at most, given that of an epoch."""
        return min(self.epochs * per_epoch, self.iterations or self.epochs * per_epoch)


def expand_phases(values: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return the keys of each phase; a list of one value serves all, others must be of one length.

    Example:
        >>> expand_phases({"loss": ["max_hinge"], "learning_rate": [1e-3, 1e-4]})
        [{'loss': 'max_hinge', 'learning_rate': 0.001}, {'loss': 'max_hinge', 'learning_rate': 0.0001}]
    """
    lengths = {key: len(each) for key, each in values.items() if len(each) != 1}
    if 0 in lengths.values() or len(set(lengths.values())) > 1:
        found = ", ".join(f"{key} has {length}" for key, length in lengths.items())
        raise ValueError(f"lists of phases must have one value or equal lengths, but {found}")
    count = next(iter(lengths.values()), 1)
    return [
        {key: each[number] if len(each) > 1 else each[0] for key, each in values.items()}
        for number in range(count)
    ]


@dataclass(frozen=True)
class Scores:
    """What a validation found: all values by name, the first of which chooses the best weights."""

    values: dict[str, float]

    @property
    def main(self) -> float:
        """The value that chooses the best weights; higher is better."""
        return next(iter(self.values.values()))

    @property
    def name(self) -> str:
        """The name of the value that chooses the best weights."""
        return next(iter(self.values))


@dataclass(frozen=True)
class Point:
    """The record of one validation."""

    epoch: int  # counted from 1, over all phases; 0 before the first step
    phase: int  # counted from 1
    loss: float  # the objective per item since the validation before
    terms: dict[str, float]  # its unweighted terms per item, by name
    scores: Scores


@dataclass
class Progress:
    """The position within phases, epochs and steps, and what was found so far."""

    phase: int = 0  # the running one, counted from 0; the number of phases when all is done
    epoch: int = 0  # finished ones, over all phases; it decides the order of the data
    epoch_in_phase: int = 0
    step: int = 0  # finished ones in this epoch
    updates: int = 0  # finished steps, over all phases
    loss: float = 0.0  # summed since the last validation
    terms: dict[str, float] = field(default_factory=dict)  # summed since the last validation
    items: int = 0  # seen since the last validation
    best_in_phase: float | None = None
    improved_in_epoch: int = 0  # when the phase last found better weights
    best: int | None = None  # the index of the point with the best weights
    points: list[Point] = field(default_factory=list)

    def add_step(self, loss: float, terms: Mapping[str, float], items: int) -> None:
        """Count a finished step."""
        self.loss += loss
        for name, value in terms.items():
            self.terms[name] = self.terms.get(name, 0.0) + value
        self.items += items
        self.step += 1
        self.updates += 1

    def add_point(self, scores: Scores) -> bool:
        """Record a validation; return whether its weights are the best so far."""
        items = max(self.items, 1)
        terms = {name: value / items for name, value in self.terms.items()}
        epoch = self.epoch + 1 if self.updates else 0
        self.points.append(Point(epoch, self.phase + 1, self.loss / items, terms, scores))
        self._forget_losses()
        if self.best_in_phase is None or scores.main > self.best_in_phase:
            self.best_in_phase, self.improved_in_epoch = scores.main, self.epoch_in_phase
        if self.best is None or scores.main > self.points[self.best].scores.main:
            self.best = len(self.points) - 1
            return True
        return False

    def end_epoch(self) -> None:
        """Go to the next epoch of this phase."""
        self.epoch, self.epoch_in_phase, self.step = self.epoch + 1, self.epoch_in_phase + 1, 0

    def end_phase(self) -> None:
        """Go to the next phase."""
        self.phase, self.epoch_in_phase = self.phase + 1, 0
        # Steps after the last validation were those of another objective.
        self._forget_losses()
        self.best_in_phase, self.improved_in_epoch = None, 0

    def of_phase(self) -> list[Point]:
        """Return the points of the running phase."""
        return [point for point in self.points if point.phase == self.phase + 1]

    @property
    def best_point(self) -> Point:
        """The point with the best weights."""
        if self.best is None:
            raise ValueError("nothing was validated yet")
        return self.points[self.best]

    def to_json(self) -> dict[str, Any]:
        """Return numbers, lists and dicts only."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "Progress":
        """Return the progress that `to_json` described, exactly."""
        return cls(**(content | {"points": [point_from_json(point) for point in content["points"]]}))

    def _forget_losses(self) -> None:
        self.loss, self.terms, self.items = 0.0, {}, 0


def point_from_json(content: dict[str, Any]) -> Point:
    """Return the point that `asdict` described."""
    return Point(**(content | {"scores": Scores(**content["scores"])}))
