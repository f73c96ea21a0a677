"""Stage `report`: one page that shows what was run and what it found."""

from pathlib import Path

import click

from fne.core.options import INPUT, OUTPUT, InputFiles, params_option, reader_option
from fne.core.settings import load_key, load_section
from fne.core.stage import stage
from fne.experiments.presets import FOLDER
from fne.report.retrieval_page import Places, write_page
from fne.report.settings import Report
from fne.store.catalog import CAPTIONS_FILE, IMAGES_FILE

METRICS = ("retrieval.json", "intervals.json", "ranks.h5", "baseline.json", "training.json")


@stage("report", "catalog.root", files=[FOLDER])
@click.argument("metrics", type=InputFiles(*METRICS))
@click.argument("history", type=INPUT)
@click.argument("catalog", type=InputFiles(IMAGES_FILE.name, CAPTIONS_FILE.name))
@click.argument("page", type=OUTPUT)
@reader_option
@params_option
def main(
    metrics: Path,
    history: Path,
    catalog: Path,
    page: Path,
    reader: tuple[Path, Path, Path] | None,
    params: Path,
) -> None:
    """Write PAGE from the METRICS of all stages, the HISTORY of training and the CATALOG."""
    settings = load_section(params, "report", Report)
    images, captions = catalog / IMAGES_FILE.name, catalog / CAPTIONS_FILE.name
    retrieval, intervals, ranks, baseline, training = (metrics / name for name in METRICS)
    places = Places(retrieval, intervals, ranks, baseline, training, history, images, captions, reader)
    write_page(page, places, settings, load_key(params, "catalog", "root"))


if __name__ == "__main__":
    main()
