"""Stage `train`: a joint space for images and captions."""

from pathlib import Path

import click

from fne.core import stat_cache
from fne.core.launch import start
from fne.core.options import INPUT, OUTPUT, InputFiles, OutputFiles, params_option
from fne.core.settings import load_runtime, load_section
from fne.core.stage import stage
from fne.matching.classifier_file import CLASSIFIER_FILE
from fne.matching.model_file import MODEL_FILE
from fne.matching.run import run_training
from fne.matching.settings import Train
from fne.text.tokens import TOKENS, VECTORS


@stage("train")
@click.argument("embeddings", type=INPUT)
@click.argument("captions", type=INPUT)
@click.argument("words", type=InputFiles(TOKENS, VECTORS))
@click.argument("model", type=OutputFiles(MODEL_FILE, CLASSIFIER_FILE))
@click.argument("history", type=OUTPUT)
@click.argument("metrics", type=OUTPUT)
@params_option
def main(
    embeddings: Path, captions: Path, words: Path, model: Path, history: Path, metrics: Path, params: Path
) -> None:
    """Train a MODEL to match EMBEDDINGS of images with the WORDS of their CAPTIONS.

    Words start from their pretrained vectors, where there are any. The classifier of an instance loss
    becomes a file of its own beside the model. The validations go to HISTORY, and what the best one found
    to METRICS.
    """
    runtime = load_runtime(params)
    stat_cache.use(runtime.scratch_folder())
    settings = load_section(params, "train", Train)
    run_training(settings, runtime, (embeddings, captions, words), (model, history, metrics))


if __name__ == "__main__":
    start(main)
