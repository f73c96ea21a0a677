"""Stage `encode`: all images and captions as vectors of the joint space."""

from pathlib import Path

import click

from fne.core import stat_cache
from fne.core.device import prepare_device
from fne.core.launch import start
from fne.core.options import INPUT, OUTPUT, params_option
from fne.core.processes import joined
from fne.core.settings import load_runtime
from fne.core.stage import stage
from fne.matching.data import Pairs
from fne.matching.encode import write_vectors
from fne.matching.imported_matcher import open_imported
from fne.matching.model import Matcher
from fne.matching.model_file import is_imported, read_model, read_model_file
from fne.store.artifact import Artifact
from fne.store.catalog import read_captions
from fne.store.lineage import recorded_lineage
from fne.store.rows import Rows
from fne.text.caption_vectors import CaptionVectors, read_caption_vectors
from fne.text.tokens import read_tokens
from fne.training.row_source import StoreRows


@stage("encode")
@click.argument("model", type=INPUT)
@click.argument("embeddings", type=INPUT)
@click.argument("captions", type=INPUT)
@click.argument("tokens", type=INPUT)
@click.argument("vectors", type=INPUT)
@click.argument("image_vectors", type=OUTPUT)
@click.argument("caption_vectors", type=OUTPUT)
@params_option
def main(
    model: Path,
    embeddings: Path,
    captions: Path,
    tokens: Path,
    vectors: Path,
    image_vectors: Path,
    caption_vectors: Path,
    params: Path,
) -> None:
    """Map all images and captions, the gallery included, through a MODEL.

    If VECTORS has imported vectors of captions, these take the place of the captions' words.
    """
    runtime = load_runtime(params)
    stat_cache.use(runtime.scratch_folder())
    device = prepare_device(runtime)
    rows, numbers = Rows.open(embeddings, "embeddings"), read_tokens(tokens)
    captioned, catalog = read_captions(captions)
    imported = read_caption_vectors(vectors)
    matcher, origin = _open_model(model, rows, imported)
    given = [imported.artifact] if imported else []
    lineage = recorded_lineage(origin, rows.artifact, numbers.artifact, catalog, *given)
    if imported:
        numbers = imported.tokens(numbers)
    pairs = Pairs(captioned, StoreRows(rows), numbers)
    dim = matcher.shape.embed_dim
    with joined(device) as processes:
        matcher.to(device)  # which of several GPUs is known only here
        stores = image_vectors, caption_vectors
        write_vectors(matcher, pairs, rows.ids, numbers.ids, stores, lineage, processes)
        processes.log(f"{len(rows.ids)} images and {len(numbers.ids)} captions, {dim} values each")


def _open_model(path: Path, rows: Rows, captions: CaptionVectors | None) -> tuple[Matcher, Artifact]:
    file = read_model_file(path)
    if is_imported(file.artifact):
        return open_imported(rows, captions, file.shape["similarity"]), file.artifact
    return read_model(path)


if __name__ == "__main__":
    start(main)
