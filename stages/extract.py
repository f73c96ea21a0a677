"""Stage `extract`: the activations of a whole network for every image."""

from pathlib import Path

import click
import torch
import torchvision

from fne.activations.crops import CROPS
from fne.activations.extract import EXTRACTOR_VERSION, extract_shards
from fne.activations.network import build_network
from fne.activations.settings import Extract
from fne.activations.weights import load_weights
from fne.core.command import INPUT, OUTPUT, params_option
from fne.core.device import prepare_device
from fne.core.params import load_params, load_section
from fne.core.runtime import load_runtime
from fne.store.catalog import read_images
from fne.store.lineage import merge
from fne.store.writer import write_rows


@click.command()
@click.argument("images", type=INPUT)
@click.argument("activations", type=OUTPUT)
@params_option
def main(images: Path, activations: Path, params: Path) -> None:
    """Compute the ACTIVATIONS of all layers for all IMAGES of the catalog."""
    settings = load_section(params, "extract", Extract)
    # Only where the files are; what they are is checked by their digests.
    root = Path(load_params(params)["catalog"]["root"])
    device = prepare_device(load_runtime(params))
    records, catalog = read_images(images)
    weights = load_weights(Path(settings.weights), settings.backbone)
    network = build_network(settings.backbone, weights, device)
    shards = extract_shards(records, root, network, CROPS[settings.crops], settings.shards, device)
    made_by = settings.model_dump(exclude={"weights"}) | {
        "activations": "post_relu",
        "resize": "squash",
        "extractor": EXTRACTOR_VERSION,
        "device": device.type,
        "torch": torch.__version__,
        "torchvision": torchvision.__version__,
    }
    write_rows(
        activations,
        "activations",
        network.layers,
        "float32",
        shards,
        made_by,
        merge(catalog, weights.artifact),
    )


if __name__ == "__main__":
    main()
