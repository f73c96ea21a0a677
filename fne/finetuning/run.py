"""The stage `finetune`, where the network is trained: what it reads, announces, trains and writes."""

import signal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fne.core import stat_cache
from fne.core.device import prepare_device
from fne.core.params import Runtime
from fne.core.processes import joined
from fne.core.signals import graceful_stop
from fne.core.terminal import say
from fne.evaluation.metrics.recall import has_started, validation_metrics
from fne.finetuning.settings import Finetune
from fne.finetuning.train import Places, announcement, build_task, finetune, read_inputs
from fne.matching.model_file import MODELS, write_tuned
from fne.store.checksums import write_metrics
from fne.training.best_epoch import Point
from fne.training.finished_runs import Finished
from fne.training.history import write_history

__all__ = ["Places", "run_finetuning"]


def run_finetuning(
    settings: Finetune, runtime: Runtime, places: Places, tuned: Path, history: Path, metrics: Path
) -> None:
    """Train, and write the tuned network with its model, the history, and what the validation found.

    Raises:
        InputError: if there is no network to train, or if settings and inputs do not fit.
    """
    stat_cache.use(runtime.scratch_folder())
    device = prepare_device(runtime, settings.threads)
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
            found = tuning_metrics(done, inputs.validation.counts)
            found |= {"threads": settings.threads, "images_at_once": task.network.part}
            made_with = settings.model_dump() | {key: found[key] for key in ("best_epoch", "started")}
            network = task.network.full_state()
            digest = write_tuned(tuned, task.matcher, network, made_with, inputs.lineage)
            write_history(history, done.points, digest, MODELS[0])
            write_metrics(metrics, found)
            say(summary(done.points, done.kept))


def tuning_metrics(done: Finished, captions_per_image: np.ndarray) -> dict[str, Any]:
    """Return the content of `metrics/tuning.json`: the validation of the weights that were kept."""
    kept = done.kept
    return {
        "tuned": True,
        "validation": validation_metrics(kept.scores.values, captions_per_image),
        "before": done.points[0].scores.main,
        "best_epoch": kept.epoch,
        "epochs": done.points[-1].epoch,
        "updates": done.updates,
        "started": has_started(kept.scores.main, captions_per_image),
        "collapsed": done.collapsed,
    }


def summary(points: list[Point], kept: Point) -> str:
    """Describe a finished fine-tuning in one line."""
    before, after = points[0].scores.main, kept.scores.main
    return (
        f"validation rsum {before:.1f} before, {after:.1f} after epoch {kept.epoch} of {points[-1].epoch} "
        "(one crop per image; `evaluate` uses the crops of extract.crops)"
    )
