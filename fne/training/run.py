"""A training run from its settings to its result: taken from the scratch folder where it is finished."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from fne.core.processes import ALONE, Processes
from fne.training.best_epoch import Phase
from fne.training.checkpoints import open_checkpoints
from fne.training.finished_runs import Finished, keep_finished, load_finished, training_key
from fne.training.loop import Schedule, Trainer
from fne.training.optimizers import OPTIMIZERS
from fne.training.settings import TrainingSection
from fne.training.task import AnyBatch, Task


@dataclass(frozen=True)
class Job:
    """Where a training runs."""

    device: torch.device
    scratch: Path  # where checkpoints and finished training runs are kept
    stopping: Callable[[], bool] = lambda: False  # asked after every step; True saves and stops
    processes: Processes = ALONE


def schedule_of(settings: TrainingSection, titles: Sequence[str], validate_start: bool = False) -> Schedule:
    """Return how to train, with a title per phase for the progress bar."""
    own = getattr(settings, settings.optimizer, None)
    phases = [
        Phase(
            title, values["learning_rate"], values["epochs"], values["patience"], values.get("iterations", 0)
        )
        for title, values in zip(titles, settings.phase_values(), strict=True)
    ]
    return Schedule(
        phases,
        settings.seed,
        partial(OPTIMIZERS[settings.optimizer], settings=own),
        settings.clip,
        settings.clip_by,
        settings.validate_every,
        settings.keep,
        validate_start,
    )


def train_task(
    task: Task[AnyBatch], settings: TrainingSection, schedule: Schedule, read: Mapping[str, str], job: Job
) -> Finished:
    """Train a task; killed and run again, it continues from the last checkpoint.

    Args:
        task: what is learned, with fresh weights; it ends with the weights that were kept.
        read: the digests of what it reads, by name.
    """
    key = training_key(settings.applied(), read, job.device.type, job.processes.count)
    return train_or_load(task, schedule, key, job)


def train_or_load(task: Task[AnyBatch], schedule: Schedule, key: dict[str, Any], job: Job) -> Finished:
    """Train a task, or load the finished training run of the same `training_key`.

    In all processes, the task ends with the same kept weights.
    """
    scratch, processes = job.scratch, job.processes
    with open_checkpoints(scratch, key, processes.log, processes) as checkpoints:
        # Searched under the lock: a process that waited finds what the other one finished.
        done = load_finished(scratch, key, processes)
        if done is not None:
            task.trained.load_state_dict(done.state)
            checkpoints.remove()  # a run killed after it was finished has left them
            processes.log("this training has finished before; its result is in the scratch folder")
            return done
        trainer = Trainer(task, schedule, checkpoints, processes)
        kept = trainer.train(log=processes.log, stopping=job.stopping)
        state, progress = dict(task.trained.state_dict()), trainer.progress
        done = Finished(progress.points, kept, state, progress.updates)
        if processes.first:
            keep_finished(scratch, key, done)
        checkpoints.remove()
        return done
