"""Stage `report`: one page that shows what was run and what it found."""

from pathlib import Path

import click

from fne.core.command import INPUT, OUTPUT, params_option
from fne.core.params import load_key, load_section
from fne.datasets.root import image_root
from fne.report.evaluation import read_evaluation
from fne.report.facts import unit_of_history
from fne.report.gallery import choose_gallery
from fne.report.history import read_history
from fne.report.page import render
from fne.report.printed import printed_row
from fne.report.settings import Report
from fne.report.thumbnails import make_thumbnails
from fne.store.catalog import read_captions, read_images
from fne.store.files import write_text
from fne.store.lineage import merge


@click.command()
@click.argument("metrics", type=INPUT)
@click.argument("intervals", type=INPUT)
@click.argument("ranks", type=INPUT)
@click.argument("history", type=INPUT)
@click.argument("images", type=INPUT)
@click.argument("captions", type=INPUT)
@click.argument("page", type=OUTPUT)
@params_option
def main(
    metrics: Path,
    intervals: Path,
    ranks: Path,
    history: Path,
    images: Path,
    captions: Path,
    page: Path,
    params: Path,
) -> None:
    """Write PAGE from METRICS, INTERVALS and RANKS, the training's HISTORY, IMAGES and CAPTIONS."""
    settings = load_section(params, "report", Report)
    # Only where the files are; what they are is checked by their digests.
    root = image_root(load_key(params, "catalog", "root"))
    evaluation = read_evaluation(metrics, intervals, ranks)
    catalog, images_artifact = read_images(images)
    captioned, captions_artifact = read_captions(captions)
    # Without image files there is none that could be of another data set.
    lineage = merge(evaluation.artifact, captions_artifact, *[images_artifact] * bool(catalog))
    gallery = choose_gallery(evaluation, settings.examples, settings.seed)
    thumbnails = make_thumbnails(gallery.image_ids, catalog, root)
    course = read_history(history, unit_of_history(lineage))
    printed = printed_row(metrics.read_bytes(), evaluation.artifact, captioned)
    write_text(page, render(evaluation, lineage, course, gallery, captioned, thumbnails, printed))


if __name__ == "__main__":
    main()
