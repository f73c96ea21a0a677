"""Stage `encode`: all images and captions as vectors of the joint space."""

from pathlib import Path

import click

from fne.core.command import INPUT, OUTPUT, params_option
from fne.core.device import prepare_device
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
    matcher.to(device)
    joint = [Layer("joint", matcher.shape.embed_dim)]
    images = vector_shards(rows.ids, matcher.shape.embed_dim, lambda ids: encode_images(matcher, pairs, ids))
    write_rows(image_vectors, "image_vectors", joint, "float32", images, {}, lineage)
    sentences = vector_shards(
        numbers.ids, matcher.shape.embed_dim, lambda ids: encode_captions(matcher, pairs, ids)
    )
    write_rows(caption_vectors, "caption_vectors", joint, "float32", sentences, {}, lineage)
    click.echo(
        f"{len(rows.ids)} images and {len(numbers.ids)} captions, {matcher.shape.embed_dim} values each"
    )


if __name__ == "__main__":
    main()
