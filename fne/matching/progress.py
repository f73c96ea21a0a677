"""Where training stands: all of it that is not a tensor, so that a killed run can go on."""

from dataclasses import asdict, dataclass, field
from typing import Any

from fne.matching.validation import Validation


@dataclass(frozen=True)
class Point:
    """What there is to tell after a validation; `loss` is per pair since the one before."""

    epoch: int  # counted from 1, over all phases
    phase: int  # counted from 1
    loss: float
    validation: Validation


@dataclass
class Progress:
    """The position within phases, epochs and steps, and what was found so far."""

    phase: int = 0  # the running one, counted from 0; as many as there are when all is done
    epoch: int = 0  # finished ones, over all phases; it decides the order of the data
    epoch_in_phase: int = 0
    step: int = 0  # finished ones in this epoch
    updates: int = 0  # finished steps, over all phases
    loss: float = 0.0  # summed since the last validation
    pairs: int = 0  # seen since the last validation
    best_in_phase: float = -1.0
    bettered_in_epoch: int = 0  # when the phase last found better weights
    best: int | None = None  # the point whose weights are the best
    points: list[Point] = field(default_factory=list)

    def note(self, validation: Validation) -> bool:
        """Add a point; tell whether the weights are the best so far."""
        point = Point(self.epoch + 1, self.phase + 1, self.loss / max(self.pairs, 1), validation)
        self.points.append(point)
        self.loss, self.pairs = 0.0, 0
        if validation.rsum > self.best_in_phase:
            self.best_in_phase, self.bettered_in_epoch = validation.rsum, self.epoch_in_phase
        if self.best is None or validation.rsum > self.points[self.best].validation.rsum:
            self.best = len(self.points) - 1
            return True
        return False

    def end_epoch(self) -> None:
        """Go to the next epoch of this phase."""
        self.epoch, self.epoch_in_phase, self.step = self.epoch + 1, self.epoch_in_phase + 1, 0

    def end_phase(self) -> None:
        """Go to the next phase."""
        self.phase, self.epoch_in_phase = self.phase + 1, 0
        # Steps after the last validation were those of another loss.
        self.loss, self.pairs = 0.0, 0
        self.best_in_phase, self.bettered_in_epoch = -1.0, 0

    @property
    def best_point(self) -> Point:
        """The point whose weights are the best."""
        if self.best is None:
            raise ValueError("nothing was validated yet")
        return self.points[self.best]

    def to_json(self) -> dict[str, Any]:
        """Return numbers, lists and dicts only."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "Progress":
        """Return what `to_json` told, exactly."""
        points = [
            Point(**(point | {"validation": Validation(**point["validation"])}))
            for point in content["points"]
        ]
        return cls(**(content | {"points": points}))
