"""Stage `finetune`: the image network is trained together with the model."""

from pathlib import Path

import click

from fne.core.launch import start
from fne.core.options import INPUT, OUTPUT, InputFiles, params_option
from fne.core.params import load_key, load_runtime, load_section
from fne.core.stage import stage
from fne.core.terminal import say
from fne.finetuning.settings import Finetune
from fne.matching.classifier_file import CLASSIFIER_FILE
from fne.matching.model_file import MODEL_FILE, MODELS, write_untuned
from fne.store.catalog import image_root
from fne.store.checksums import write_metrics
from fne.store.history import write_empty_history


@stage("finetune", paths=["extract.weights"])
@click.argument("model", type=InputFiles(MODEL_FILE, CLASSIFIER_FILE))
@click.argument("images", type=INPUT)
@click.argument("captions", type=INPUT)
@click.argument("tokens", type=INPUT)
@click.argument("tuned", type=OUTPUT)
@click.argument("history", type=OUTPUT)
@click.argument("metrics", type=OUTPUT)
@params_option
def main(
    model: Path,
    images: Path,
    captions: Path,
    tokens: Path,
    tuned: Path,
    history: Path,
    metrics: Path,
    params: Path,
) -> None:
    """Train the network behind MODEL, its classifier and the model itself, from IMAGES and their CAPTIONS.

    TUNED holds the network and the model, or says that `finetune.epochs` is 0. The validations go to HISTORY,
    and that of the weights in TUNED to METRICS.
    """
    settings = load_section(params, "finetune", Finetune)
    if not settings.is_on:
        digest = write_untuned(tuned)
        write_empty_history(history, digest, MODELS[0])
        write_metrics(metrics, {"tuned": False})
        say("finetune.epochs is 0: the image network stays as it is")
        return
    # Only where the files are; what they are is checked by their digests.
    root, weights = load_key(params, "catalog", "root"), load_key(params, "extract", "weights")
    from fne.finetuning.run import Places, run_finetuning  # torch: slow to import

    places = Places(model, images, captions, tokens, Path(weights), image_root(root))
    run_finetuning(settings, load_runtime(params), places, tuned, history, metrics)


if __name__ == "__main__":
    start(main)
