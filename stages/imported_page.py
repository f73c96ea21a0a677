"""Stage `imported_page`: one page that shows what imported vectors find."""

from pathlib import Path

import click

from fne.core.files import write_text
from fne.core.options import OUTPUT, InputFiles, params_option
from fne.core.settings import load_key, load_section
from fne.core.stage import stage
from fne.report.explanations import explain_gallery
from fne.report.frame import PageSource
from fne.report.gallery import choose_gallery
from fne.report.page import render_imported
from fne.report.settings import Report
from fne.report.sources import read_evaluation
from fne.store.catalog import CAPTIONS_FILE, IMAGES_FILE

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
    source = PageSource.read(
        evaluation.artifact, catalog / IMAGES_FILE.name, catalog / CAPTIONS_FILE.name, root
    )
    gallery = choose_gallery(evaluation, settings.examples, settings.seed)
    gallery, explanations = explain_gallery(gallery, evaluation, source.captioned, None)
    frame = source.frame("imported", settings.model_dump(), gallery.image_ids)
    write_text(page, render_imported(evaluation, frame, gallery, explanations))


if __name__ == "__main__":
    main()
