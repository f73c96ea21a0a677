"""Stage `report`: one page that shows what was run and what it found."""

import os
from pathlib import Path

import click

from fne.core.files import write_text
from fne.core.options import INPUT, OUTPUT, InputFiles, params_option
from fne.core.params import load_key, load_section
from fne.core.stage import input_digests, stage
from fne.core.terminal import say
from fne.evaluation.baseline import baseline_artifact, read_baseline
from fne.experiments.presets import FOLDER
from fne.experiments.tables import find_paper_row
from fne.report.facts import head, history_unit
from fne.report.gallery import choose_gallery
from fne.report.page import EXPERIMENT, Report, make_thumbnails, render
from fne.report.record import page_record, pages_of_other_catalogs
from fne.report.sources import read_evaluation, read_history, read_training, read_tuning
from fne.store.catalog import CAPTIONS_FILE, IMAGES_FILE, image_root, read_captions, read_images
from fne.store.lineage import check_records, recorded_lineage

METRICS = ("retrieval.json", "intervals.json", "ranks.h5", "baseline.json", "training.json", "tuning.json")


@stage("report", "catalog.root", files=[FOLDER])
@click.argument("metrics", type=InputFiles(*METRICS))
@click.argument("history", type=INPUT)
@click.argument("tuning_history", type=INPUT)
@click.argument("catalog", type=InputFiles(IMAGES_FILE.name, CAPTIONS_FILE.name))
@click.argument("page", type=OUTPUT)
@params_option
def main(metrics: Path, history: Path, tuning_history: Path, catalog: Path, page: Path, params: Path) -> None:
    """Write PAGE from the METRICS of all stages, their histories and the CATALOG."""
    retrieval, intervals, ranks, baseline, training, tuning = (metrics / name for name in METRICS)
    settings = load_section(params, "report", Report)
    root = load_key(params, "catalog", "root")
    evaluation = read_evaluation(retrieval, intervals, ranks)
    images, images_artifact = read_images(catalog / IMAGES_FILE.name)
    captioned, captions_artifact = read_captions(catalog / CAPTIONS_FILE.name)
    # Without image files there is none that could be of another data set.
    lineage = recorded_lineage(evaluation.artifact, captions_artifact, *[images_artifact] * bool(images))
    gallery = choose_gallery(evaluation, settings.examples, settings.seed)
    thumbnails = make_thumbnails(gallery.image_ids, images, image_root(root))
    curves = read_history(history, evaluation.artifact, history_unit(lineage))
    paper_row = find_paper_row(retrieval.read_bytes(), evaluation.artifact, captioned)
    closed_form = read_baseline(baseline, evaluation.artifact.settings["name"], evaluation.artifact.lineage)
    check_records(baseline_artifact(baseline))
    record = page_record(settings.model_dump() | {"root": root}, lineage, input_digests())
    about = head(lineage, root, captioned, os.environ.get(EXPERIMENT))
    found = read_training(training, evaluation.artifact)
    text = render(
        evaluation,
        lineage,
        curves,
        gallery,
        captioned,
        thumbnails,
        paper_row,
        closed_form,
        about,
        found,
        read_tuning(tuning, tuning_history, evaluation.artifact),
        record,
    )
    write_text(page, text)
    others = pages_of_other_catalogs(page, lineage)
    if others:
        say(
            f"{', '.join(map(str, others))}: made from another catalog than {page}; make them again with "
            "`dvc repro pipelines/tagging/dvc.yaml pipelines/captioning/dvc.yaml`, or remove them"
        )


if __name__ == "__main__":
    main()
