"""Stage `train_captioner`: a model that writes sentences about images."""

from pathlib import Path

import click

from fne.core.launch import start
from fne.core.options import INPUT, OUTPUT, params_option
from fne.core.settings import load_runtime, load_section
from fne.core.stage import stage
from fne.describing.run import train_and_write
from fne.describing.settings import TrainCaptioner


@stage("train_captioner")
@click.argument("embeddings", type=INPUT)
@click.argument("captions", type=INPUT)
@click.argument("model", type=OUTPUT)
@click.argument("history", type=OUTPUT)
@params_option
def main(embeddings: Path, captions: Path, model: Path, history: Path, params: Path) -> None:
    """Train a MODEL that writes captions for EMBEDDINGS of images, from their CAPTIONS."""
    settings, runtime = load_section(params, "train_captioner", TrainCaptioner), load_runtime(params)
    train_and_write(settings, runtime, embeddings, captions, model, history)


if __name__ == "__main__":
    start(main)
