"""Stage `encode`: all images and captions as vectors of the joint space."""

from pathlib import Path

import click

from fne.core import stat_cache
from fne.core.device import prepare_device
from fne.core.launch import start
from fne.core.options import INPUT, OUTPUT, params_option
from fne.core.params import load_key, load_runtime
from fne.core.processes import joined
from fne.core.publishing import stage
from fne.models.matcher_file import is_tuned, read_model
from fne.store.catalog import image_root, read_captions, read_images
from fne.store.provenance import recorded_lineage
from fne.store.rows import Rows
from fne.tasks.matching.data import Pairs
from fne.tasks.matching.encode import write_vectors
from fne.text.tokens import read_tokens


@stage()
@click.argument("model", type=INPUT)
@click.argument("tuned", type=INPUT)
@click.argument("images", type=INPUT)
@click.argument("embeddings", type=INPUT)
@click.argument("captions", type=INPUT)
@click.argument("tokens", type=INPUT)
@click.argument("image_vectors", type=OUTPUT)
@click.argument("caption_vectors", type=OUTPUT)
@params_option
def main(
    model: Path,
    tuned: Path,
    images: Path,
    embeddings: Path,
    captions: Path,
    tokens: Path,
    image_vectors: Path,
    caption_vectors: Path,
    params: Path,
) -> None:
    """Map all images and captions, the gallery included, through a MODEL.

    If TUNED holds a tuned network, IMAGES pass through it and through the model that was tuned with it.
    """
    runtime = load_runtime(params)
    stat_cache.use(runtime.scratch_folder())
    device = prepare_device(runtime)
    matcher, origin = read_model(model)
    rows, numbers = Rows.open(embeddings, "embeddings"), read_tokens(tokens)
    captioned, catalog = read_captions(captions)
    lineage = recorded_lineage(origin, rows.artifact, numbers.artifact, catalog)
    tuned_rows = None
    if is_tuned(tuned):
        from fne.tasks.finetuning.encode import open_tuned_rows  # slow to import

        listed, files = read_images(images)
        matcher, final = read_model(tuned)
        lineage = recorded_lineage(final, origin, rows.artifact, numbers.artifact, catalog, files)
        root = image_root(load_key(params, "catalog", "root"))
        tuned_rows = open_tuned_rows(tuned, listed, root, runtime)
    pairs = Pairs(captioned, rows, numbers)
    dim = matcher.shape.embed_dim
    with joined(device) as processes:
        matcher.to(device)  # which of several GPUs is known only here
        stores = image_vectors, caption_vectors
        write_vectors(matcher, pairs, rows.ids, numbers.ids, stores, lineage, processes, tuned_rows)
        processes.log(f"{len(rows.ids)} images and {len(numbers.ids)} captions, {dim} values each")


if __name__ == "__main__":
    start(main)
