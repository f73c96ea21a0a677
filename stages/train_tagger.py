"""Stage `train_tagger`: concepts of images, and a decoder that writes them one after the other."""

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
from fne.core.terminal import say
from fne.describing.tagging.data import read_inputs
from fne.describing.tagging.model import NAME, write_tagger
from fne.describing.tagging.settings import TrainTagger
from fne.describing.tagging.train import source_of, train_tagger
from fne.describing.validation import summary
from fne.training.history import write_history
from fne.training.run import Job


@stage("train_tagger")
@click.argument("embeddings", type=INPUT)
@click.argument("captions", type=INPUT)
@click.argument("model", type=OUTPUT)
@click.argument("history", type=OUTPUT)
@params_option
def main(embeddings: Path, captions: Path, model: Path, history: Path, params: Path) -> None:
    """Train a MODEL to tag images from their EMBEDDINGS, with the tags or words in CAPTIONS."""
    settings, runtime = load_section(params, "train_tagger", TrainTagger), load_runtime(params)
    stat_cache.use(runtime.scratch_folder())
    device = prepare_device(runtime, settings.threads)
    hints = settings.user_hints
    inputs = read_inputs(
        embeddings, captions, source_of(settings), settings.order, hints.count if hints else 0
    )
    with (
        joined(device) as processes,
        graceful_stop(partial(processes.log, err=True), [signal.SIGTERM]) as stopping,
    ):
        for note in inputs.notes:
            processes.log(note)
        job = Job(device, runtime.scratch_folder(), stopping, processes)
        tagger, done = train_tagger(settings, inputs, job)
        if processes.first:
            made_with = settings.applied() | {"best_epoch": done.kept.epoch}
            digest = write_tagger(model, tagger, inputs, made_with, inputs.lineage)
            write_history(history, done.points, digest, NAME)
            say(summary(done.kept))


if __name__ == "__main__":
    start(main)
