"""Stage `finetune`: the image network is trained together with the model."""

from pathlib import Path

import click

from fne.core.launch import start
from fne.core.options import INPUT, OUTPUT, params_option
from fne.core.settings import load_key, load_runtime, load_section
from fne.core.stage import stage
from fne.finetuning.run import Places, run_finetuning
from fne.finetuning.settings import Finetune
from fne.store.catalog import image_root


@stage("finetune", paths=["extract.weights"])
@click.argument("model", type=INPUT)
@click.argument("classifier", type=INPUT)
@click.argument("images", type=INPUT)
@click.argument("captions", type=INPUT)
@click.argument("tokens", type=INPUT)
@click.argument("tuned", type=OUTPUT)
@click.argument("history", type=OUTPUT)
@click.argument("metrics", type=OUTPUT)
@params_option
def main(
    model: Path,
    classifier: Path,
    images: Path,
    captions: Path,
    tokens: Path,
    tuned: Path,
    history: Path,
    metrics: Path,
    params: Path,
) -> None:
    """Train the network behind MODEL, its CLASSIFIER and the model itself, from IMAGES and their CAPTIONS.

    TUNED holds the network and the model. The validations go to HISTORY, and that of the weights in TUNED to
    METRICS.
    """
    settings = load_section(params, "finetune", Finetune)
    # Only where the files are; what they are is checked by their digests.
    root, weights = load_key(params, "catalog", "root"), load_key(params, "extract", "weights")
    places = Places(model, classifier, images, captions, tokens, Path(weights), image_root(root))
    run_finetuning(settings, load_runtime(params), places, tuned, history, metrics)


if __name__ == "__main__":
    start(main)
