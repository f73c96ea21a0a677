"""Stage `judgments_page`: one page about the agreement of the model with people."""

import os
from pathlib import Path

import click

from fne.core.files import write_text
from fne.core.options import INPUT, OUTPUT, InputFiles, params_option
from fne.core.settings import load_key, load_section
from fne.core.stage import input_digests, stage
from fne.evaluation.baseline import read_baseline
from fne.evaluation.judgments_file import read_judged
from fne.evaluation.ranks_file import RANKS
from fne.report.facts import head
from fne.report.judgments_page import PAGE, choose_disagreements, read_pairs, render_judgments
from fne.report.page import EXPERIMENT, make_thumbnails
from fne.report.record import page_record
from fne.report.settings import Report
from fne.store.arrays import read_arrays
from fne.store.catalog import CAPTIONS_FILE, IMAGES_FILE, image_root, read_captions, read_images
from fne.store.checksums import read_metrics
from fne.store.lineage import recorded_lineage

METRICS = ("retrieval.json", "ranks.h5", "baseline.json")


@stage("judgments_page", "catalog.root")
@click.argument("judgments", type=INPUT)
@click.argument("pairs", type=INPUT)
@click.argument("metrics", type=InputFiles(*METRICS))
@click.argument("catalog", type=InputFiles(IMAGES_FILE.name, CAPTIONS_FILE.name))
@click.argument("page", type=OUTPUT)
@params_option
def main(judgments: Path, pairs: Path, metrics: Path, catalog: Path, page: Path, params: Path) -> None:
    """Write PAGE from the figures of JUDGMENTS, the judged PAIRS, the METRICS of recall and the CATALOG."""
    settings, root = load_section(params, PAGE, Report), load_key(params, "catalog", "root")
    retrieval, ranks, baseline = (metrics / name for name in METRICS)
    evaluation = read_arrays(ranks, RANKS).artifact
    images, images_artifact = read_images(catalog / IMAGES_FILE.name)
    captioned, captions_artifact = read_captions(catalog / CAPTIONS_FILE.name)
    lineage = recorded_lineage(evaluation, captions_artifact, *[images_artifact] * bool(images))
    name = evaluation.settings["name"]
    found, examples = (
        read_judged(judgments, evaluation),
        choose_disagreements(read_pairs(pairs), settings.examples),
    )
    shown = [pair.image for _, chosen in examples for pair in chosen]
    text = render_judgments(
        found,
        name,
        read_metrics(retrieval, "run `dvc repro evaluate`")[name]["rsum"],
        read_baseline(baseline, name, lineage),
        examples,
        captioned,
        make_thumbnails(shown, images, image_root(root)),
        lineage,
        head(lineage, root, captioned, os.environ.get(EXPERIMENT)),
        page_record(settings.model_dump() | {"root": root}, lineage, input_digests(), PAGE),
    )
    write_text(page, text)


if __name__ == "__main__":
    main()
