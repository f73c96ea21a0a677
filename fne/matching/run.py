"""The stage `train`, where a model is trained: what it reads, trains and writes.

`metrics/training.json`, by which experiments are chosen, has the figures of the validation split. The test
split serves only to report what was chosen; choosing by it would overstate the result.
"""

import signal
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fne.core.device import prepare_device
from fne.core.processes import joined
from fne.core.settings import Runtime
from fne.core.signals import graceful_stop
from fne.core.terminal import say
from fne.evaluation.metrics.collapse import not_started
from fne.evaluation.metrics.recall import (
    RECALLS,
    has_started,
    small_split_warning,
    validation_metrics,
)
from fne.matching.classifier_file import CLASSIFIER_FILE, write_classifier
from fne.matching.data import read_inputs
from fne.matching.methods import make_model
from fne.matching.model_file import MODEL_FILE, write_model
from fne.matching.settings import Train, require_precision
from fne.matching.task import objectives
from fne.store.artifact import Artifact
from fne.store.checksums import write_metrics
from fne.text.tokens import TOKENS, VECTORS
from fne.training.finished_runs import Finished
from fne.training.history import write_history
from fne.training.run import Job

Three = tuple[Path, Path, Path]
DIRECTIONS = ("image_to_text", "text_to_image")


def run_training(settings: Train, runtime: Runtime, sources: Three, outputs: Three) -> None:
    """Train, and write the results.

    Args:
        sources: the embeddings, the catalog of captions, and the folder of tokens and word vectors.
        outputs: the folder of model and classifier, the history and the metrics.
    """
    folder, history, metrics = outputs
    model = folder / MODEL_FILE
    device = prepare_device(runtime, settings.threads)
    require_precision(settings.precision, device.type)
    embeddings, captions, words = sources
    inputs = read_inputs(embeddings, captions, words / TOKENS, words / VECTORS)
    with (
        joined(device) as processes,
        graceful_stop(partial(processes.log, err=True), [signal.SIGTERM]) as stopping,
    ):
        made = make_model(settings, inputs, Job(device, runtime.scratch_folder(), stopping, processes))
        if not processes.first:
            return
        found = training_metrics(made.done, inputs.validation.caption_counts)
        found |= {"threads": settings.threads}
        made_with = settings.applied() | {key: found[key] for key in ("best_epoch", "started")}
        given = settings.given()
        digest = write_model(model, made.matcher, made_with, inputs.lineage, given)
        written = Artifact(model, "model", digest, made_with, inputs.lineage, sections={"train": given})
        if made.classes is not None:
            write_classifier(folder / CLASSIFIER_FILE, made.classes, settings.applied(), written)
        write_history(history, made.done.points, digest)
        write_metrics(metrics, found)
        say(f"{kept(found, made.done.kept.phase)}: {summary(found)}")
        for warning in warnings(found, settings.method, [each.title for each in objectives(settings)]):
            say(f"Warning: {warning}", err=True)


def training_metrics(done: Finished, caption_counts: np.ndarray) -> dict[str, Any]:
    """Return the validation of the weights that training kept, and how the training went."""
    values = done.kept.scores.values
    return {
        "validation": validation_metrics(values, caption_counts),
        "started": has_started(values["rsum"], caption_counts),
        "best_epoch": done.kept.epoch,
        "epochs": done.points[-1].epoch,
        "updates": done.updates,
        "collapsed": done.collapsed,
    }


def kept(found: Mapping[str, Any], phase: int) -> str:
    """Say which epoch was kept, and of which phase; a closed form alone has no epochs.

    Example:
        >>> kept({"best_epoch": 0, "epochs": 21}, 1)
        'no epoch was better than its start, which is kept'
    """
    if found["best_epoch"] == 0 < found["epochs"]:
        return "no epoch was better than its start, which is kept"
    return f"best epoch {found['best_epoch']} (phase {phase})"


def summary(found: Mapping[str, Any]) -> str:
    """Describe the validation of `training_metrics` in one line."""
    validation = found["validation"]
    recalls = {
        direction: " / ".join(f"{validation[direction][f'R@{k}']:.1f}" for k in RECALLS)
        for direction in DIRECTIONS
    }
    return (
        f"validation rsum {validation['rsum']:.1f}, chance {validation['chance']:.1f}, sentences for "
        f"images {recalls['image_to_text']}, images for sentences {recalls['text_to_image']}"
    )


def warnings(found: Mapping[str, Any], method: str, losses: Sequence[str] = ()) -> list[str]:
    """Return what is wrong with `training_metrics`: the training did not start, or it says little."""
    validation = found["validation"]
    small = small_split_warning(validation["images"], validation["chance"], len(RECALLS))
    stuck = not_started(
        validation["rsum"],
        validation["chance"],
        losses,
        found["epochs"],
        found["updates"],
        found["collapsed"],
        method,
    )
    return [*[f"validation: {small}"] * bool(small), *[stuck] * (not found["started"])]
