"""Stage `evaluate`: ranks and recalls in both directions."""

from pathlib import Path

import click

from fne.core import stat_cache
from fne.core.device import prepare_device
from fne.core.launch import start
from fne.core.options import INPUT, OUTPUT, params_option
from fne.core.processes import joined
from fne.core.settings import load_runtime, load_section
from fne.core.stage import stage
from fne.core.terminal import say
from fne.evaluation.protocols import Evaluate, choose_folds, refuse_leaks
from fne.evaluation.score_retrieval import Places, evaluate, write_results
from fne.matching.model_file import require_same_model
from fne.matching.similarities import SIMILARITIES
from fne.store.catalog import read_captions, split_artifact
from fne.store.lineage import recorded_lineage
from fne.store.rows import Rows


@stage("evaluate")
@click.argument("image_vectors", type=INPUT)
@click.argument("caption_vectors", type=INPUT)
@click.argument("captions", type=INPUT)
@click.argument("metrics", type=OUTPUT)
@click.argument("intervals", type=OUTPUT)
@click.argument("curves", type=OUTPUT)
@click.argument("ranks", type=OUTPUT)
@params_option
def main(
    image_vectors: Path,
    caption_vectors: Path,
    captions: Path,
    metrics: Path,
    intervals: Path,
    curves: Path,
    ranks: Path,
    params: Path,
) -> None:
    """Rank the images and CAPTIONS of a split; write METRICS, their INTERVALS, CURVES and RANKS."""
    settings = load_section(params, "evaluate", Evaluate)
    runtime = load_runtime(params)
    stat_cache.use(runtime.scratch_folder())
    device = prepare_device(runtime)
    images, sentences = (
        Rows.open(image_vectors, "image_vectors"),
        Rows.open(caption_vectors, "caption_vectors"),
    )
    captioned, catalog = read_captions(captions)
    train_images = split_artifact(captions, captioned, "train")
    lineage = recorded_lineage(images.artifact, sentences.artifact, catalog, train_images)
    require_same_model(images.artifact, sentences.artifact)
    refuse_leaks(lineage, captioned, captions)
    folds = choose_folds(settings.protocol, captioned, settings.split)
    similarity = SIMILARITIES[lineage["model"]["settings"]["similarity"]]
    with joined(device) as processes:
        evaluation = evaluate(folds, images, sentences, similarity, settings.top, device, processes)
        if processes.first:
            places = Places(metrics, intervals, curves, ranks)
            line, warnings = write_results(evaluation, settings, lineage, places)
            say(line)
            for warning in warnings:
                say(f"Warning: {warning}", err=True)


if __name__ == "__main__":
    start(main)
