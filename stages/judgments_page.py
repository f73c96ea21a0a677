"""Stage `judgments_page`: one page about the agreement of the model with people."""

from pathlib import Path

import click

from fne.core.files import write_text
from fne.core.options import INPUT, OUTPUT, InputFiles, params_option
from fne.core.settings import load_key, load_section
from fne.core.stage import stage
from fne.evaluation.baseline import read_baseline
from fne.evaluation.judgments_file import read_judged
from fne.evaluation.ranks_file import RANKS
from fne.report.frame import PageSource
from fne.report.judgments_page import PAGE, choose_disagreements, read_pairs, render_judgments
from fne.report.settings import Report
from fne.store.arrays import read_arrays
from fne.store.catalog import CAPTIONS_FILE, IMAGES_FILE
from fne.store.checksums import read_metrics

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
    source = PageSource.read(evaluation, catalog / IMAGES_FILE.name, catalog / CAPTIONS_FILE.name, root)
    name = evaluation.settings["name"]
    found = read_judged(judgments, evaluation)
    rsum = read_metrics(retrieval, "run `dvc repro evaluate`")[name]["rsum"]
    closed_form = read_baseline(baseline, name, source.lineage)
    examples = choose_disagreements(read_pairs(pairs), settings.examples)
    shown = [pair.image for _, chosen in examples for pair in chosen]
    frame = source.frame(PAGE, settings.model_dump(), shown)
    write_text(page, render_judgments(found, name, rsum, closed_form, examples, frame))


if __name__ == "__main__":
    main()
