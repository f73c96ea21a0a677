"""The training loop: phases of epochs of steps, for any task.

A phase starts from the weights that the previous one passed on (the best so far, or the last). It ends after
its epochs or iterations, or when its own validation has not improved for `patience` epochs. The run can be
saved after any step and resumed from there, bit for bit.
"""

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic

import torch
from torch import Tensor, nn

from fne.core.device import download, explain_out_of_memory
from fne.core.errors import InputError
from fne.core.processes import ALONE, Processes
from fne.core.progress import progress as show_progress
from fne.core.signals import StoppedError
from fne.training.best_epoch import Phase, Point, Progress
from fne.training.checkpoints import Checkpoints
from fne.training.optimizers import clip_gradients, flatten, restore
from fne.training.task import AnyBatch, ParameterGroup, Task


@dataclass(frozen=True)
class Schedule:
    """How a task is trained."""

    phases: Sequence[Phase]
    seed: int
    optimizer: Callable[[Sequence[ParameterGroup], float], torch.optim.Optimizer]  # given a phase's rate
    clip: float  # the norm above which gradients are clipped; 0 for never
    clip_by: str  # a key of `fne.training.optimizers.CLIPS`
    validate_every: int  # updates between validations; 0 for once per epoch
    keep: str = "best"  # the weights that a phase passes on and training ends with: `best` or `last`
    validate_start: bool = False  # whether the weights before the first step may be the best


class Trainer(Generic[AnyBatch]):
    """A training run that can be saved after any step; without `checkpoints` nothing is saved."""

    def __init__(
        self,
        task: Task[AnyBatch],
        schedule: Schedule,
        checkpoints: Checkpoints | None = None,
        processes: Processes = ALONE,
    ) -> None:
        self.task = task
        self.schedule = schedule
        self.checkpoints = checkpoints
        self.processes = processes
        self.progress = Progress()
        self.best_state: dict[str, Tensor] = {}
        self._start_phase()

    def train(
        self,
        on_validation: Callable[[Point], None] = lambda point: None,
        log: Callable[[str], None] = lambda text: None,
        stopping: Callable[[], bool] = lambda: False,
    ) -> Point:
        """Train to the end, from the newest checkpoint if there is one; return the point of the kept weights.

        Args:
            on_validation: called with every point, those of the checkpoint included.
            stopping: asked after every step; True saves a checkpoint and raises `StoppedError`.
        """
        progress = self._resume()
        if progress is not None:
            log(f"resuming at epoch {progress.epoch + 1}, step {progress.step + 1}")
        for point in self.progress.points:
            on_validation(point)
        with explain_out_of_memory(self.task.memory_hint):
            if self.schedule.validate_start and not self.progress.updates and not self.progress.points:
                self._validate(on_validation)
            while self.progress.phase < len(self.schedule.phases):
                self._train_phase(on_validation, log, stopping)
        if self.schedule.keep == "last":
            return self.progress.points[-1]
        self.task.trained.load_state_dict(self.best_state)
        return self.progress.best_point

    def step(self, batch: AnyBatch) -> tuple[float, dict[str, float]]:
        """Make one update; return the loss of the batch and its terms."""
        self.task.trained.train()
        loss = self.task.loss(batch, step_generator(self.schedule.seed, self.progress.updates))
        for each in self.parameters:
            each.grad = None
        loss.total.backward()  # type: ignore[no-untyped-call]
        self.processes.add_gradients(self.parameters)
        norm = clip_gradients(self.groups, self.schedule.clip, self.schedule.clip_by)
        # All values in one read, because every read makes the host wait for a GPU.
        # A single term equals the value.
        terms = loss.terms if len(loss.terms) > 1 else {}
        read = torch.stack(
            [each.detach().double() for each in (loss.total, norm, loss.value, *terms.values())]
        )
        total, length, value, *values = download(read).tolist()
        self._require_finite(total, batch, "loss")
        self._require_finite(length, batch, "gradient")
        self.optimizer.step()
        return value, dict(zip(terms, values, strict=True))

    def save(self) -> None:
        """Write a checkpoint."""
        tensors = {f"trained.{name}": value for name, value in self.task.trained.state_dict().items()}
        tensors |= {f"best.{name}": value for name, value in self.best_state.items()}
        tensors |= {f"optimizer.{name}": value for name, value in flatten(self.optimizer).items()}
        if self.checkpoints:
            self.checkpoints.save(self.progress.to_json(), tensors)

    def _resume(self) -> Progress | None:
        found = self.checkpoints.load() if self.checkpoints else None
        if found is None:
            return None
        content, tensors = found
        self.progress = Progress.from_json(content)
        self.task.trained.load_state_dict(_under("trained.", tensors))
        current = self.task.trained.state_dict()
        self.best_state = {
            name: value.to(current[name].device) for name, value in _under("best.", tensors).items()
        }
        if self.progress.phase < len(self.schedule.phases):
            self._start_phase()
            restore(self.optimizer, _under("optimizer.", tensors))
        return self.progress

    def _start_phase(self) -> None:
        """Set the objective, the trained parameters and a fresh optimizer of the running phase."""
        phase = self.schedule.phases[self.progress.phase]
        self.task.start_phase(self.progress.phase)
        groups = self.task.parameter_groups()
        self.groups = [list(group.parameters) for group in groups]
        self.parameters: list[nn.Parameter] = [each for group in self.groups for each in group]
        self.optimizer = self.schedule.optimizer(groups, phase.learning_rate)

    def _train_phase(
        self, on_validation: Callable[[Point], None], log: Callable[[str], None], stopping: Callable[[], bool]
    ) -> None:
        progress, phase = self.progress, self.schedule.phases[self.progress.phase]
        steps, warned = self.task.steps(), False
        title = f"train, phase {progress.phase + 1} of {len(self.schedule.phases)} ({phase.title})"
        done = progress.epoch_in_phase * steps + progress.step
        total, first = phase.steps(steps), self.processes.first
        phase = replace(phase, epochs=-(-total // steps))
        with show_progress(title, total, done, "step", at_most=True, shown=first) as shown:
            while not self._phase_is_over(phase):
                # The last epoch ends with the last iteration.
                batches = self.task.batches(progress.epoch)[: total - progress.epoch_in_phase * steps]
                last = progress.epoch_in_phase == phase.epochs - 1
                for batch in batches[progress.step :]:
                    progress.add_step(*self.step(batch), len(batch))
                    if self._validation_is_due(progress.step == len(batches), last):
                        self._validate(on_validation)
                    shown.update(status=self._status(phase))
                    if self.processes.any(stopping()):
                        self.save()
                        raise StoppedError
                    if self.checkpoints and self.checkpoints.due():
                        self.save()
                shown.mark(self._status(phase))
                progress.end_epoch()
                warning = None if warned else self.task.warning(progress.phase, progress.of_phase())
                if warning:
                    shown.clear()
                    log(warning)
                    warned = True
        if self.schedule.keep == "best":
            self.task.trained.load_state_dict(self.best_state)
        progress.end_phase()
        if progress.phase < len(self.schedule.phases):
            self._start_phase()

    def _validation_is_due(self, epoch_ended: bool, last_epoch: bool) -> bool:
        every = self.schedule.validate_every
        if not every:
            return epoch_ended
        return self.progress.updates % every == 0 or (epoch_ended and last_epoch)

    def _validate(self, on_validation: Callable[[Point], None]) -> None:
        if self.progress.add_point(self.task.validate()) and self.schedule.keep == "best":
            self.best_state = {name: value.clone() for name, value in self.task.trained.state_dict().items()}
        on_validation(self.progress.points[-1])

    def _phase_is_over(self, phase: Phase) -> bool:
        progress = self.progress
        waited = progress.epoch_in_phase - 1 - progress.improved_in_epoch
        is_validated = progress.best_in_phase is not None
        return progress.epoch_in_phase >= phase.epochs or (is_validated and waited >= phase.patience)

    def _require_finite(self, value: float, batch: AnyBatch, name: str) -> None:
        """Stop before a value that is not finite reaches the weights, and with them a checkpoint."""
        if not math.isfinite(value):
            raise InputError(
                f"training stopped: the {name} is {value} at step {self.progress.step + 1} of epoch "
                f"{self.progress.epoch + 1}, with {batch}; lower {self.task.section}.learning_rate or check "
                "these inputs"
            )

    def _status(self, phase: Phase) -> str:
        progress = self.progress
        epoch = f"epoch {progress.epoch_in_phase + 1}/{phase.epochs}"
        if progress.best is None:
            return epoch
        last, best = progress.points[-1], progress.best_point.scores.main
        return f"{epoch}, loss {last.loss:.3g}, {last.scores.name} {last.scores.main:.4g}, best {best:.4g}"


def step_generator(seed: int, update: int) -> torch.Generator:
    """Return the generator of one update's random numbers, a function of seed and update."""
    digest = hashlib.sha256(f"{seed} {update}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8]))


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
