"""Stage `encode`: all images and captions as vectors of the joint space."""

from collections import deque
from functools import partial
from pathlib import Path

import click

from fne.core.command import INPUT, OUTPUT, params_option
from fne.core.device import prepare_device
from fne.core.launch import start
from fne.core.processes import joined
from fne.core.runtime import load_runtime
from fne.matching.encoding import encode_captions, encode_images, vector_shards
from fne.matching.modelfile import read_model
from fne.matching.pairs import Pairs
from fne.store.catalog import read_captions
from fne.store.layout import Layer
from fne.store.lineage import merge
from fne.store.rows import Rows
from fne.store.tokens import read_tokens
from fne.store.writer import write_rows


@click.command()
@click.argument("model", type=INPUT)
@click.argument("embeddings", type=INPUT)
@click.argument("captions", type=INPUT)
@click.argument("tokens", type=INPUT)
@click.argument("image_vectors", type=OUTPUT)
@click.argument("caption_vectors", type=OUTPUT)
@params_option
def main(
    model: Path,
    embeddings: Path,
    captions: Path,
    tokens: Path,
    image_vectors: Path,
    caption_vectors: Path,
    params: Path,
) -> None:
    """Map all images and captions, the gallery included, through a MODEL."""
    device = prepare_device(load_runtime(params))
    matcher, origin = read_model(model)
    rows, numbers = Rows.open(embeddings, "embeddings"), read_tokens(tokens)
    captioned, catalog = read_captions(captions)
    lineage = merge(origin, rows.artifact, numbers.artifact, catalog)
    pairs = Pairs(captioned, rows, numbers)
    dim = matcher.shape.embed_dim
    with joined(device) as processes:
        matcher.to(device)  # which of several GPUs is known only here
        for store, kind, ids, encode in (
            (image_vectors, "image_vectors", rows.ids, encode_images),
            (caption_vectors, "caption_vectors", numbers.ids, encode_captions),
        ):
            shards = vector_shards(ids, dim, partial(encode, matcher, pairs, processes=processes))
            if processes.first:
                write_rows(store, kind, [Layer("joint", dim)], "float32", shards, {}, lineage)
            else:  # the first writes what all compute
                deque(shards, maxlen=0)
        processes.say(f"{len(rows.ids)} images and {len(numbers.ids)} captions, {dim} values each")


if __name__ == "__main__":
    start(main)
