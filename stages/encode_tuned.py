"""Stage `encode_tuned`: all images and captions as vectors of the joint space of the tuned model."""

from pathlib import Path

import click

from fne.core import stat_cache
from fne.core.device import prepare_device
from fne.core.launch import start
from fne.core.options import INPUT, OUTPUT, params_option
from fne.core.processes import joined
from fne.core.settings import load_key, load_runtime
from fne.core.stage import stage
from fne.finetuning.encode import TunedRows
from fne.matching.data import Pairs
from fne.matching.encode import write_vectors
from fne.matching.model_file import read_model
from fne.store.catalog import image_root, read_captions, read_images
from fne.store.lineage import recorded_lineage
from fne.text.tokens import read_tokens


@stage()
@click.argument("tuned", type=INPUT)
@click.argument("images", type=INPUT)
@click.argument("captions", type=INPUT)
@click.argument("tokens", type=INPUT)
@click.argument("image_vectors", type=OUTPUT)
@click.argument("caption_vectors", type=OUTPUT)
@params_option
def main(
    tuned: Path,
    images: Path,
    captions: Path,
    tokens: Path,
    image_vectors: Path,
    caption_vectors: Path,
    params: Path,
) -> None:
    """Map all IMAGES through the network of TUNED, and these and all CAPTIONS through its model."""
    runtime = load_runtime(params)
    stat_cache.use(runtime.scratch_folder())
    device = prepare_device(runtime)
    matcher, origin = read_model(tuned)
    listed, files = read_images(images)
    captioned, catalog = read_captions(captions)
    numbers = read_tokens(tokens)
    lineage = recorded_lineage(origin, numbers.artifact, catalog, files)
    # Only where the files are; what they are is checked by their digests.
    rows = TunedRows(origin, listed, image_root(load_key(params, "catalog", "root")), runtime)
    pairs, ids = Pairs(captioned, rows, numbers), [image.id for image in listed]
    with joined(device) as processes:
        matcher.to(device)  # which of several GPUs is known only here
        stores = image_vectors, caption_vectors
        write_vectors(matcher, pairs, ids, numbers.ids, stores, lineage, processes)
        dim = matcher.shape.embed_dim
        processes.log(f"{len(ids)} images and {len(numbers.ids)} captions, {dim} values each")


if __name__ == "__main__":
    start(main)
