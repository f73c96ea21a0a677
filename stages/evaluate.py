"""Stage `evaluate`: ranks and recalls in both directions."""

from pathlib import Path

import click

from fne.core.command import INPUT, OUTPUT, params_option
from fne.core.device import prepare_device
from fne.core.launch import start
from fne.core.params import load_section
from fne.core.processes import joined
from fne.core.runtime import load_runtime
from fne.ranking.similarities import SIMILARITIES
from fne.retrieval.evaluation import evaluate
from fne.retrieval.leaks import refuse_leaks
from fne.retrieval.protocols import choose_folds
from fne.retrieval.results import write_results
from fne.retrieval.settings import Evaluate
from fne.store.catalog import read_captions, split_artifact
from fne.store.lineage import merge
from fne.store.rows import Rows


@click.command()
@click.argument("image_vectors", type=INPUT)
@click.argument("caption_vectors", type=INPUT)
@click.argument("captions", type=INPUT)
@click.argument("metrics", type=OUTPUT)
@click.argument("intervals", type=OUTPUT)
@click.argument("ranks", type=OUTPUT)
@params_option
def main(
    image_vectors: Path,
    caption_vectors: Path,
    captions: Path,
    metrics: Path,
    intervals: Path,
    ranks: Path,
    params: Path,
) -> None:
    """Rank the images and CAPTIONS of a split; write METRICS, their INTERVALS and RANKS."""
    settings = load_section(params, "evaluate", Evaluate)
    device = prepare_device(load_runtime(params))
    images, sentences = (
        Rows.open(image_vectors, "image_vectors"),
        Rows.open(caption_vectors, "caption_vectors"),
    )
    captioned, catalog = read_captions(captions)
    train_images = split_artifact(captions, captioned, "train")
    lineage = merge(images.artifact, sentences.artifact, catalog, train_images)
    refuse_leaks(lineage, captioned, captions)
    folds = choose_folds(settings.protocol, captioned, settings.split)
    similarity = SIMILARITIES[lineage["model"]["settings"]["similarity"]]
    with joined(device) as processes:
        evaluation = evaluate(folds, images, sentences, similarity, settings.top, device, processes)
        if processes.first:
            click.echo(write_results(evaluation, settings, lineage, metrics, intervals, ranks))


if __name__ == "__main__":
    start(main)
