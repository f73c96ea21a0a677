"""Stage `finetune`: the image network is trained together with the model."""

from pathlib import Path

import click

from fne.core.launch import start
from fne.core.options import INPUT, OUTPUT, InputFiles, params_option
from fne.core.settings import load_key, load_runtime, load_section
from fne.core.stage import stage
from fne.finetuning.matching import read_inputs, run_finetuning
from fne.finetuning.run import Places
from fne.finetuning.settings import Finetune
from fne.matching.classifier_file import CLASSIFIER_FILE
from fne.matching.model_file import MODEL_FILE
from fne.store.catalog import image_root


@stage("finetune", paths=["extract.weights"])
@click.argument("model", type=InputFiles(MODEL_FILE, CLASSIFIER_FILE))
@click.argument("images", type=INPUT)
@click.argument("captions", type=INPUT)
@click.argument("tokens", type=INPUT)
@click.argument("statistics", type=INPUT)
@click.argument("tuned", type=OUTPUT)
@click.argument("history", type=OUTPUT)
@click.argument("metrics", type=OUTPUT)
@params_option
def main(
    model: Path,
    images: Path,
    captions: Path,
    tokens: Path,
    statistics: Path,
    tuned: Path,
    history: Path,
    metrics: Path,
    params: Path,
) -> None:
    """Train the network behind MODEL, its classifier and the model itself, from IMAGES and their CAPTIONS.

    TUNED holds the network and the model. The validations go to HISTORY, and that of the weights in TUNED to
    METRICS.
    """
    settings, runtime = load_section(params, "finetune", Finetune), load_runtime(params)
    # Only where the files are; what they are is checked by their digests.
    root, weights = load_key(params, "catalog", "root"), load_key(params, "extract", "weights")
    places = Places(images, Path(weights), statistics, image_root(root))
    inputs = read_inputs(model, captions, tokens, places, runtime)
    run_finetuning(settings, runtime, inputs, tuned, history, metrics)


if __name__ == "__main__":
    start(main)
