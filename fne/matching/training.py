"""Training: phases of epochs, judged on the validation images, saved as it goes."""

from collections.abc import Callable
from dataclasses import dataclass

from fne.core.device import saying_when_memory_ends
from fne.core.processes import ALONE, Processes
from fne.matching.checkpoints import Checkpoints
from fne.matching.collapse import has_started
from fne.matching.model import Matcher
from fne.matching.pairs import Pairs
from fne.matching.progress import Point
from fne.matching.run import Run, Schedule
from fne.ranking.metrics import RECALLS, Metrics


@dataclass(frozen=True)
class Outcome:
    """The best point of training, and whether training ever left the ground."""

    best: Point
    started: bool

    def summary(self) -> str:
        """Say how it went."""
        best = self.best.validation
        told = (
            f"best epoch {self.best.epoch} (phase {self.best.phase}): validation rsum {best.rsum:.1f}, "
            f"sentences for images {_joined(best.image_to_text)}, "
            f"images for sentences {_joined(best.text_to_image)}"
        )
        return told if self.started else f"{told}; training did not start"


def train(
    matcher: Matcher,
    schedule: Schedule,
    training: Pairs,
    validation: Pairs,
    checkpoints: Checkpoints,
    tell: Callable[[Point], None],
    say: Callable[[str], None],
    stopping: Callable[[], bool] = lambda: False,
    processes: Processes = ALONE,
) -> Outcome:
    """Train `matcher` in place; it ends with the best weights.

    A phase starts from the best weights so far. It ends after its epochs, or when it has
    not bettered its own best validation for `patience` of them.

    Args:
        matcher: the model, fresh.
        schedule: how to train it.
        training: the pairs to learn from.
        validation: the pairs to judge by.
        checkpoints: where a killed run left off, and where this one saves.
        tell: told every point, those before a kill included.
        say: told what a user should know.
        stopping: asked after every step; True saves and raises `StoppedError`.
        processes: who shares the work; all of them end with the same weights.

    Raises:
        InputError: if the loss is not finite; the checkpoint before is kept.
        StoppedError: if it was asked to stop.
    """
    run = Run(matcher, schedule, training, validation, checkpoints, processes)
    if run.resume():
        say(f"going on from epoch {run.progress.epoch + 1}, step {run.progress.step + 1}")
    for point in run.progress.points:
        tell(point)
    with saying_when_memory_ends("lower train.batch, train.embed_dim or train.word_dim"):
        while run.progress.phase < len(schedule.phases):
            run.train_phase(tell, say, stopping)
    matcher.load_state_dict(run.best_state)
    best = run.progress.best_point
    return Outcome(best, has_started(best.validation.rsum, validation.caption_counts))


def _joined(recalls: Metrics) -> str:
    return " / ".join(f"{recalls[f'R@{k}']:.1f}" for k in RECALLS)
