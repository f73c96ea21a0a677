"""Stage `tune_captioner`: the image network is trained together with a captioner."""

from pathlib import Path

import click

from fne.core.launch import start
from fne.core.options import INPUT, OUTPUT, params_option
from fne.core.settings import load_key, load_runtime, load_section
from fne.core.stage import stage
from fne.finetuning.describing import read_inputs, run_tuning
from fne.finetuning.run import Places
from fne.finetuning.settings import TuneCaptioner
from fne.store.catalog import image_root


@stage("tune_captioner", paths=["extract.weights"])
@click.argument("model", type=INPUT)
@click.argument("images", type=INPUT)
@click.argument("captions", type=INPUT)
@click.argument("statistics", type=INPUT)
@click.argument("tuned", type=OUTPUT)
@click.argument("history", type=OUTPUT)
@params_option
def main(
    model: Path, images: Path, captions: Path, statistics: Path, tuned: Path, history: Path, params: Path
) -> None:
    """Train the network behind MODEL together with it, from IMAGES and their CAPTIONS; TUNED holds both."""
    settings, runtime = load_section(params, "tune_captioner", TuneCaptioner), load_runtime(params)
    # Only where the files are; what they are is checked by their digests.
    root, weights = load_key(params, "catalog", "root"), load_key(params, "extract", "weights")
    places = Places(images, Path(weights), statistics, image_root(root))
    inputs = read_inputs(settings, model, captions, places, runtime)
    run_tuning(settings, runtime, inputs, tuned, history)


if __name__ == "__main__":
    start(main)
