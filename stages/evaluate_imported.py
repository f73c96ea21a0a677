"""Stage `evaluate_imported`: ranks and recalls of imported vectors, in both directions."""

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
from fne.evaluation.imported import Imported, close_to_chance, open_sides, require_all
from fne.evaluation.protocols import Evaluate, choose_folds, refuse_image_leaks
from fne.evaluation.score_retrieval import Places, evaluate, write_results
from fne.matching.similarities import OF_ANY_LENGTH
from fne.store.catalog import read_captions, split_artifact
from fne.store.lineage import recorded_lineage


@stage("imported", "evaluate", paths=["imported.images", "imported.captions"])
@click.argument("captions", type=INPUT)
@click.argument("metrics", type=OUTPUT)
@click.argument("intervals", type=OUTPUT)
@click.argument("curves", type=OUTPUT)
@click.argument("ranks", type=OUTPUT)
@params_option
def main(captions: Path, metrics: Path, intervals: Path, curves: Path, ranks: Path, params: Path) -> None:
    """Rank the images and CAPTIONS of a split by the vectors of two stores, as `evaluate` does.

    The stores are those of the section `imported`. Nothing is trained.
    """
    settings, runtime = load_section(params, "evaluate", Evaluate), load_runtime(params)
    stat_cache.use(runtime.scratch_folder())
    device = prepare_device(runtime)
    sides = open_sides(load_section(params, "imported", Imported))
    captioned, catalog = read_captions(captions)
    require_all(sides, captioned)
    train_images = split_artifact(captions, captioned, "train")
    lineage = recorded_lineage(sides.images.artifact, sides.captions.artifact, catalog, train_images)
    refuse_image_leaks(lineage, captioned, captions)
    folds = choose_folds(settings.protocol, captioned, settings.split)
    similarity = OF_ANY_LENGTH[sides.similarity]
    with joined(device) as processes:
        evaluation = evaluate(
            folds, sides.images, sides.captions, similarity, settings.top, device, processes
        )
        if processes.first:
            places = Places(metrics, intervals, curves, ranks)
            line, warnings = write_results(evaluation, settings, lineage, places, sides.similarity)
            say(f"{line}; {sides.similarity}")
            if not evaluation.has_started():
                found = evaluation.metrics(settings.recalls)
                warnings.append(close_to_chance(found["rsum"], found["chance"]))
            for warning in warnings:
                say(f"Warning: {warning}", err=True)


if __name__ == "__main__":
    start(main)
