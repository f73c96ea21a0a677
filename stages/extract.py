"""Stage `extract`: the activations of a whole network for every image."""

from pathlib import Path

import click

from fne.activations.cost import shard_advice
from fne.activations.engines import ENGINES, Recipe
from fne.activations.extract import assemble, complete
from fne.activations.extractor import build_extractor
from fne.activations.previous import adopt
from fne.activations.processor import origin
from fne.activations.scratch import Scratch
from fne.activations.settings import Extract
from fne.activations.weights import load_weights
from fne.core.command import INPUT, OUTPUT, params_option
from fne.core.params import load_key, load_section
from fne.core.runtime import load_runtime
from fne.datasets.root import image_root
from fne.store.catalog import read_images
from fne.store.lineage import merge
from fne.store.writer import write_rows


@click.command()
@click.argument("images", type=INPUT)
@click.argument("activations", type=OUTPUT)
@params_option
def main(images: Path, activations: Path, params: Path) -> None:
    """Compute the ACTIVATIONS of all layers for all IMAGES of the catalog."""
    settings, runtime = load_section(params, "extract", Extract), load_runtime(params)
    # Only where the files are; what they are is checked by their digests.
    root = image_root(load_key(params, "catalog", "root"))
    records, catalog = read_images(images)
    weights = load_weights(Path(settings.weights), settings.backbone)
    recipe = Recipe(settings, Path(settings.weights), runtime)
    with ENGINES[runtime.engine](recipe, click.echo) as engine:
        extractor = build_extractor(settings, weights, runtime.algorithm, engine.device, engine.elsewhere)
        scratch = Scratch(runtime.scratch_folder() / "activations", extractor.kind, extractor.features)
        advice = shard_advice(extractor, len(records), settings.shards)
        if advice:
            click.echo(advice, err=True)
        adopt(scratch, records, activations, images, extractor)
        complete(scratch, records, root, extractor, runtime.batch, runtime.workers, click.echo, engine)
    shards = assemble(scratch, records, settings.shards)
    lineage = merge(catalog, weights.artifact)
    digests = {image.id: image.sha256 for image in records}
    made_by = origin(digests, scratch.processors(digests.values()))
    write_rows(
        activations, "activations", extractor.layers, "float32", shards, extractor.kind, lineage, made_by
    )


if __name__ == "__main__":
    main()
