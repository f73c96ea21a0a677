"""Stage `encode`: all images and captions as vectors of the joint space."""

from pathlib import Path

import click

from fne.core import stat_cache
from fne.core.device import prepare_device
from fne.core.launch import start
from fne.core.options import INPUT, InputFiles, OutputFiles, params_option
from fne.core.processes import joined
from fne.core.settings import load_runtime
from fne.core.stage import stage
from fne.matching.data import Pairs
from fne.matching.encode import write_vectors
from fne.matching.model_file import MODEL_FILE, read_model
from fne.store.catalog import CAPTIONS_FILE, read_captions
from fne.store.lineage import recorded_lineage
from fne.store.rows import Rows
from fne.text.caption_vectors import read_caption_rows
from fne.text.tokens import TOKENS, VECTORS, read_tokens
from fne.training.row_source import StoreRows


@stage()
@click.argument("model", type=InputFiles(MODEL_FILE))
@click.argument("embeddings", type=INPUT)
@click.argument("catalog", type=InputFiles(CAPTIONS_FILE.name))
@click.argument("words", type=InputFiles(TOKENS, VECTORS))
@click.argument("vectors", type=OutputFiles("images", "captions"))
@params_option
def main(model: Path, embeddings: Path, catalog: Path, words: Path, vectors: Path, params: Path) -> None:
    """Map all images and captions of CATALOG, the gallery included, through a MODEL.

    If WORDS has rows of captions, these take the place of the captions' words.
    """
    runtime = load_runtime(params)
    stat_cache.use(runtime.scratch_folder())
    device = prepare_device(runtime)
    rows, numbers = Rows.open(embeddings, "embeddings"), read_tokens(words / TOKENS)
    captioned, sentences = read_captions(catalog / CAPTIONS_FILE.name)
    given = read_caption_rows(words / VECTORS)
    matcher, origin = read_model(model / MODEL_FILE)
    lineage = recorded_lineage(
        origin, rows.artifact, numbers.artifact, sentences, *([given.artifact] if given else [])
    )
    pairs = Pairs(captioned, StoreRows(rows), given or numbers)
    dim = matcher.shape.embed_dim
    with joined(device) as processes:
        matcher.to(device)  # which of several GPUs is known only here
        stores = vectors / "images", vectors / "captions"
        write_vectors(matcher, pairs, rows.ids, numbers.ids, stores, lineage, processes)
        processes.log(f"{len(rows.ids)} images and {len(numbers.ids)} captions, {dim} values each")


if __name__ == "__main__":
    start(main)
