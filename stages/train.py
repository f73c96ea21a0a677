"""Stage `train`: a joint space for images and captions."""

import json
import signal
from functools import partial
from pathlib import Path

import click

from fne.core import stat_cache
from fne.core.device import prepare_device
from fne.core.files import write_text
from fne.core.launch import start
from fne.core.options import INPUT, OUTPUT, params_option
from fne.core.params import load_runtime, load_section
from fne.core.processes import joined
from fne.core.publishing import stage
from fne.core.signals import graceful_stop
from fne.core.terminal import say
from fne.losses.classifier_file import write_classifier
from fne.models.matcher_file import IMPORTED, write_model
from fne.store.artifact import Artifact
from fne.tasks.matching.data import read_inputs
from fne.tasks.matching.methods import make_model, validate_imported
from fne.tasks.matching.results import summary, training_metrics, warnings
from fne.tasks.matching.settings import Encode, Train, require_precision
from fne.training.history import write_history
from fne.training.run import Job


@stage("train", "encode.source")
@click.argument("embeddings", type=INPUT)
@click.argument("captions", type=INPUT)
@click.argument("tokens", type=INPUT)
@click.argument("vectors", type=INPUT)
@click.argument("model", type=OUTPUT)
@click.argument("classifier", type=OUTPUT)
@click.argument("history", type=OUTPUT)
@click.argument("metrics", type=OUTPUT)
@params_option
def main(
    embeddings: Path,
    captions: Path,
    tokens: Path,
    vectors: Path,
    model: Path,
    classifier: Path,
    history: Path,
    metrics: Path,
    params: Path,
) -> None:
    """Train a MODEL to match EMBEDDINGS of images with the TOKENS of their CAPTIONS.

    Words start from their pretrained VECTORS, where there are any. The CLASSIFIER of an instance loss is
    written to a file of its own; without such a loss it is empty. The validations go to HISTORY, and what
    the best one found to METRICS.

    With `encode.source: imported` nothing is trained: the model is a header that stands for imported vectors.
    """
    settings, runtime = load_section(params, "train", Train), load_runtime(params)
    imported = load_section(params, "encode", Encode).source == IMPORTED
    stat_cache.use(runtime.scratch_folder())
    device = prepare_device(runtime)
    require_precision(settings.precision, device)
    inputs = read_inputs(embeddings, captions, tokens, vectors)
    with (
        joined(device) as processes,
        graceful_stop(partial(processes.log, err=True), [signal.SIGTERM]) as stopping,
    ):
        job = Job(device, runtime.scratch_folder(), stopping, processes)
        applied = {"source": IMPORTED, "similarity": settings.similarity} if imported else settings.applied()
        made = (
            validate_imported(inputs, settings.similarity) if imported else make_model(settings, inputs, job)
        )
        if processes.first:
            found = training_metrics(made.done, inputs.validation)
            made_with = applied | {key: found[key] for key in ("best_epoch", "started")}
            digest = write_model(model, made.matcher, made_with, inputs.lineage)
            written = Artifact(model, "model", digest, made_with, inputs.lineage)
            write_classifier(classifier, made.classes, applied, written)
            write_history(history, made.done.points, digest)
            write_text(metrics, json.dumps(found, indent=2) + "\n")
            if imported:
                say("imported vectors, nothing is trained; the validation split:")
            say(summary(found, made.done.kept.phase))
            for warning in warnings(found, settings):
                say(f"Warning: {warning}", err=True)


if __name__ == "__main__":
    start(main)
