"""One run of training: the model, its optimizer, the best weights, and where it stands."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from tqdm import tqdm

from fne.core.errors import InputError
from fne.core.processes import Processes
from fne.core.stopping import StoppedError
from fne.matching.checkpoints import Checkpoints
from fne.matching.clipping import CLIPS
from fne.matching.collapse import flat_loss, has_started, is_flat, warning
from fne.matching.embedding import embed_batch, on_device
from fne.matching.losses import Loss, bind
from fne.matching.model import PRECISIONS, Matcher
from fne.matching.optimizers import OPTIMIZERS, flatten, restore
from fne.matching.pairs import Batch, Pairs, batch_starts
from fne.matching.phases import Phase
from fne.matching.progress import Point, Progress
from fne.matching.validation import validate


@dataclass(frozen=True)
class Schedule:
    """How training goes about it; see `params.yaml` for what each choice means."""

    phases: list[Phase]
    seed: int
    batch: int
    captions: str
    optimizer: str
    clip: float
    clip_by: str
    precision: str
    validate_every: int
    hardest: str
    top_k: int


class Run:
    """A run that can be saved after any step, and go on from there."""

    def __init__(
        self,
        matcher: Matcher,
        schedule: Schedule,
        training: Pairs,
        validation: Pairs,
        checkpoints: Checkpoints,
        processes: Processes,
    ) -> None:
        self.matcher = matcher
        self.schedule = schedule
        self.training = training
        self.validation = validation
        self.checkpoints = checkpoints
        self.processes = processes
        self.progress = Progress()
        self.best_state: dict[str, Tensor] = {}
        self.optimizer = self._new_optimizer()
        torch.manual_seed(schedule.seed)

    def resume(self) -> bool:
        """Go back to the newest checkpoint; tell whether there was one."""
        found = self.checkpoints.load()
        if found is None:
            return False
        progress, tensors = found
        self.progress = Progress.from_json(progress)
        self.matcher.load_state_dict(_under("model.", tensors))
        self.best_state = {
            name: value.to(self.matcher.device) for name, value in _under("best.", tensors).items()
        }
        self.optimizer = self._new_optimizer()
        restore(self.optimizer, _under("optimizer.", tensors))
        torch.set_rng_state(tensors["generator"])
        return True

    def save(self) -> None:
        """Write a checkpoint."""
        tensors = {"generator": torch.get_rng_state()}
        tensors |= {f"model.{name}": value for name, value in self.matcher.state_dict().items()}
        tensors |= {f"best.{name}": value for name, value in self.best_state.items()}
        tensors |= {f"optimizer.{name}": value for name, value in flatten(self.optimizer).items()}
        self.checkpoints.save(self.progress.to_json(), tensors)

    def train_phase(
        self, tell: Callable[[Point], None], say: Callable[[str], None], stopping: Callable[[], bool]
    ) -> None:
        """Train to the end of the running phase."""
        progress, phase = self.progress, self.schedule.phases[self.progress.phase]
        steps = len(batch_starts(self.training.drawn(self.schedule.captions), self.schedule.batch))
        title = f"train, phase {progress.phase + 1} of {len(self.schedule.phases)} ({phase.loss})"
        done = progress.epoch_in_phase * steps + progress.step
        flat, warned = flat_loss(phase, self.schedule.batch, self.schedule.top_k), False
        hidden = None if self.processes.first else True
        with tqdm(total=phase.epochs * steps, initial=done, desc=title, unit="step", disable=hidden) as bar:
            while not self._phase_is_over(phase):
                for _ in self._epoch(phase, last=progress.epoch_in_phase == phase.epochs - 1, tell=tell):
                    bar.set_postfix_str(self._standing(phase), refresh=False)
                    bar.update()
                    if self.processes.any(stopping()):
                        self.save()
                        raise StoppedError
                    if self.checkpoints.due():
                        self.save()
                progress.end_epoch()
                if flat and not warned and self._stays_at(flat):
                    bar.clear()
                    say(warning(phase, flat))
                    warned = True
        self.matcher.load_state_dict(self.best_state)
        progress.end_phase()
        self.optimizer = self._new_optimizer()

    def _epoch(self, phase: Phase, last: bool, tell: Callable[[Point], None]) -> Iterator[None]:
        """Train on the batches that this epoch has left, yielding after each."""
        progress, schedule = self.progress, self.schedule
        loss = bind(phase.loss, schedule.hardest, schedule.top_k)
        batches = self.training.batches(schedule.seed, progress.epoch, schedule.batch, schedule.captions)
        for batch in batches[progress.step :]:
            progress.loss += self._step(batch, loss, phase.margin)
            progress.pairs += len(batch.image_ids)
            progress.step += 1
            progress.updates += 1
            ended = progress.step == len(batches)
            every = schedule.validate_every
            if (progress.updates % every == 0 or (ended and last)) if every else ended:
                self._validate(tell)
            yield

    def _step(self, batch: Batch, loss: Loss, margin: float) -> float:
        matcher, device = self.matcher, self.matcher.device
        matcher.train()
        precision = PRECISIONS[self.schedule.precision]
        images, captions = embed_batch(matcher, self.training, batch, precision, self.processes)
        scores = matcher.similarity(images, captions)
        total = loss(scores, on_device(batch.positives(), device), margin)
        self._require_finite(total, batch, "loss")
        self.optimizer.zero_grad()
        total.backward()  # type: ignore[no-untyped-call]
        self.processes.add_gradients(matcher.parameters())
        self._require_finite(
            CLIPS[self.schedule.clip_by](matcher.parameters(), self.schedule.clip), batch, "gradient"
        )
        self.optimizer.step()
        return total.item()

    def _require_finite(self, value: Tensor, batch: Batch, name: str) -> None:
        """Stop before a value that is not finite reaches the weights, and with them a checkpoint."""
        if not value.isfinite():
            raise InputError(
                f"training stopped: the {name} is {value.item()} at step {self.progress.step + 1} of epoch "
                f"{self.progress.epoch + 1}, with images {', '.join(batch.image_ids)}; lower "
                "train.learning_rate or look at these images"
            )

    def _validate(self, tell: Callable[[Point], None]) -> None:
        if self.progress.note(validate(self.matcher, self.validation, self.processes)):
            self.best_state = {name: value.clone() for name, value in self.matcher.state_dict().items()}
        tell(self.progress.points[-1])

    def _phase_is_over(self, phase: Phase) -> bool:
        progress = self.progress
        waited = progress.epoch_in_phase - 1 - progress.bettered_in_epoch
        is_judged = progress.best_in_phase >= 0
        return progress.epoch_in_phase >= phase.epochs or (is_judged and waited >= phase.patience)

    def _stays_at(self, flat: float) -> bool:
        """Tell whether this phase sits at the loss of a collapsed model; one that learns may pass by it."""
        points = [point for point in self.progress.points if point.phase == self.progress.phase + 1]
        return is_flat(points, flat) and not has_started(
            points[-1].validation.rsum, self.validation.caption_counts
        )

    def _standing(self, phase: Phase) -> str:
        progress = self.progress
        epoch = f"epoch {progress.epoch_in_phase + 1}/{phase.epochs}"
        if progress.best is None:
            return epoch
        last = progress.points[-1]
        return (
            f"{epoch}, loss {last.loss:.3g}, rsum {last.validation.rsum:.1f}, "
            f"best {progress.best_point.validation.rsum:.1f}"
        )

    def _new_optimizer(self) -> torch.optim.Optimizer:
        number = min(self.progress.phase, len(self.schedule.phases) - 1)
        rate = self.schedule.phases[number].learning_rate
        return OPTIMIZERS[self.schedule.optimizer](self.matcher.parameters(), rate)


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
