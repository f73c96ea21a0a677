"""The stage `train`, where a model is trained: what it reads, trains and writes."""

import signal
from functools import partial
from pathlib import Path

from fne.core.device import prepare_device
from fne.core.params import Runtime
from fne.core.processes import joined
from fne.core.signals import graceful_stop
from fne.core.terminal import say
from fne.matching.classifier_file import write_classifier
from fne.matching.data import read_inputs
from fne.matching.methods import make_model
from fne.matching.model_file import write_model
from fne.matching.results import kept, summary, training_metrics, warnings
from fne.matching.settings import Train, require_precision
from fne.store.artifact import Artifact
from fne.store.checksums import write_metrics
from fne.training.history import write_history
from fne.training.run import Job

Four = tuple[Path, Path, Path, Path]


def run_training(settings: Train, runtime: Runtime, sources: Four, outputs: Four) -> None:
    """Train, and write the model, its classifier, the history and the metrics.

    Args:
        settings: the section `train`.
        runtime: the section `runtime`.
        sources: the embeddings, captions, tokens and word vectors.
        outputs: the model, the classifier, the history and the metrics.

    Raises:
        InputError: if settings and inputs do not fit.
    """
    model, classifier, history, metrics = outputs
    device = prepare_device(runtime, settings.threads)
    require_precision(settings.precision, device)
    inputs = read_inputs(*sources)
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
        write_classifier(classifier, made.classes, settings.applied(), written)
        write_history(history, made.done.points, digest)
        write_metrics(metrics, found)
        say(f"{kept(found, made.done.kept.phase)}: {summary(found)}")
        for warning in warnings(found, settings.method, settings.loss_titles()):
            say(f"Warning: {warning}", err=True)
