"""Stage `imported_page`: one page that shows what imported vectors find."""

import os
from pathlib import Path

import click

from fne.core.files import write_text
from fne.core.options import OUTPUT, InputFiles, params_option
from fne.core.settings import load_key, load_section
from fne.core.stage import input_digests, stage
from fne.report.explanations import explain_gallery
from fne.report.facts import head
from fne.report.gallery import choose_gallery
from fne.report.page import EXPERIMENT, make_thumbnails, render_imported
from fne.report.record import page_record
from fne.report.settings import Report
from fne.report.sources import read_evaluation
from fne.store.catalog import CAPTIONS_FILE, IMAGES_FILE, image_root, read_captions, read_images
from fne.store.lineage import recorded_lineage

METRICS = ("imported.json", "imported_intervals.json", "imported_ranks.h5")


@stage("report", "catalog.root")
@click.argument("metrics", type=InputFiles(*METRICS))
@click.argument("catalog", type=InputFiles(IMAGES_FILE.name, CAPTIONS_FILE.name))
@click.argument("page", type=OUTPUT)
@params_option
def main(metrics: Path, catalog: Path, page: Path, params: Path) -> None:
    """Write PAGE from the METRICS of `evaluate_imported` and the CATALOG."""
    settings = load_section(params, "report", Report)
    root = load_key(params, "catalog", "root")
    remedy = "run `dvc repro pipelines/imported/dvc.yaml`"
    retrieval, intervals, ranks = (metrics / name for name in METRICS)
    evaluation = read_evaluation(retrieval, intervals, ranks, remedy)
    images, images_artifact = read_images(catalog / IMAGES_FILE.name)
    captioned, captions_artifact = read_captions(catalog / CAPTIONS_FILE.name)
    # Without image files there is none that could be of another data set.
    lineage = recorded_lineage(evaluation.artifact, captions_artifact, *[images_artifact] * bool(images))
    gallery = choose_gallery(evaluation, settings.examples, settings.seed)
    gallery, explanations = explain_gallery(gallery, evaluation, captioned, None)
    thumbnails = make_thumbnails(gallery.image_ids, images, image_root(root))
    record = page_record(settings.model_dump() | {"root": root}, lineage, input_digests(), "imported")
    about = head(lineage, root, captioned, os.environ.get(EXPERIMENT))
    text = render_imported(evaluation, lineage, gallery, captioned, thumbnails, about, record, explanations)
    write_text(page, text)


if __name__ == "__main__":
    main()
