"""Stage `train_captioner`: a model that writes sentences about images."""

import signal
from functools import partial
from pathlib import Path

import click

from fne.core import stat_cache
from fne.core.device import prepare_device
from fne.core.launch import start
from fne.core.options import INPUT, OUTPUT, params_option
from fne.core.params import load_runtime, load_section
from fne.core.processes import joined
from fne.core.signals import graceful_stop
from fne.core.stage import stage
from fne.describing.captioning.data import read_inputs
from fne.describing.captioning.model_file import NAME, write_captioner
from fne.describing.captioning.settings import TrainCaptioner
from fne.describing.captioning.task import summary
from fne.describing.captioning.train import reading_of, train_captioner
from fne.training.history import write_history
from fne.training.run import Job


@stage("train_captioner")
@click.argument("embeddings", type=INPUT)
@click.argument("captions", type=INPUT)
@click.argument("model", type=OUTPUT)
@click.argument("history", type=OUTPUT)
@params_option
def main(embeddings: Path, captions: Path, model: Path, history: Path, params: Path) -> None:
    """Train a MODEL that writes captions for EMBEDDINGS of images, from their CAPTIONS."""
    settings, runtime = load_section(params, "train_captioner", TrainCaptioner), load_runtime(params)
    stat_cache.use(runtime.scratch_folder())
    device = prepare_device(runtime, settings.threads)
    inputs = read_inputs(embeddings, captions, reading_of(settings))
    with (
        joined(device) as processes,
        graceful_stop(partial(processes.log, err=True), [signal.SIGTERM]) as stopping,
    ):
        processes.log(inputs.summary())
        job = Job(device, runtime.scratch_folder(), stopping, processes)
        captioner, done = train_captioner(settings, inputs, job)
        if processes.first:
            made_with = settings.applied() | {"best_epoch": done.kept.epoch}
            digest = write_captioner(
                model, captioner, inputs.words, inputs.concepts, made_with, inputs.lineage
            )
            write_history(history, done.points, digest, NAME)
            count = len(inputs.validation)
            processes.log(summary(done.kept, min(settings.validation_images or count, count)))


if __name__ == "__main__":
    start(main)
