"""The stage `finetune`, where the network is trained: what it reads, announces, trains and writes."""

import signal
from functools import partial
from pathlib import Path

from fne.core import stat_cache
from fne.core.device import prepare_device
from fne.core.params import Runtime
from fne.core.processes import joined
from fne.core.signals import graceful_stop
from fne.core.terminal import say
from fne.models.matcher_file import write_tuned
from fne.store.artifact import MODELS
from fne.tasks.finetuning.settings import Finetune
from fne.tasks.finetuning.train import Places, announcement, build_task, finetune, read_inputs
from fne.training.history import write_history
from fne.training.progress import Point

__all__ = ["Places", "run_finetuning"]


def run_finetuning(settings: Finetune, runtime: Runtime, places: Places, tuned: Path, history: Path) -> None:
    """Train, and write the tuned network with its model, and the history.

    Raises:
        InputError: if there is no network to train, or if settings and inputs do not fit.
    """
    stat_cache.use(runtime.scratch_folder())
    device = prepare_device(runtime)
    inputs = read_inputs(places, settings.epochs)
    with (
        joined(device) as processes,
        graceful_stop(partial(processes.log, err=True), [signal.SIGTERM]) as stopping,
    ):
        task = build_task(settings, inputs, runtime, device, processes)
        processes.log(announcement(task, settings, inputs.extraction["backbone"], device))
        scratch = runtime.scratch_folder()
        done = finetune(task, settings, inputs, device, scratch, stopping, processes)
        if processes.first:
            made_with = settings.model_dump() | {"best_epoch": done.kept.epoch}
            network = task.network.full_state()
            digest = write_tuned(tuned, task.matcher, network, made_with, inputs.lineage)
            write_history(history, done.points, digest, MODELS[0])
            say(summary(done.points, done.kept))


def summary(points: list[Point], kept: Point) -> str:
    """Describe a finished fine-tuning in one line."""
    before, after = points[0].scores.main, kept.scores.main
    return (
        f"validation rsum {before:.1f} before, {after:.1f} after epoch {kept.epoch} of {points[-1].epoch} "
        "(one crop per image; `evaluate` uses the crops of extract.crops)"
    )
