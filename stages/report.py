"""Stage `report`: one page that shows what was run and what it found."""

from pathlib import Path

import click

from fne.core.options import INPUT, OUTPUT, params_option
from fne.core.settings import load_key, load_section
from fne.core.stage import stage
from fne.experiments.presets import FOLDER
from fne.report.retrieval_page import Places, write_page
from fne.report.settings import Report


@stage("report", "catalog.root", files=[FOLDER])
@click.argument("metrics", type=INPUT)
@click.argument("intervals", type=INPUT)
@click.argument("ranks", type=INPUT)
@click.argument("baseline", type=INPUT)
@click.argument("training", type=INPUT)
@click.argument("history", type=INPUT)
@click.argument("images", type=INPUT)
@click.argument("captions", type=INPUT)
@click.argument("page", type=OUTPUT)
@params_option
def main(
    metrics: Path,
    intervals: Path,
    ranks: Path,
    baseline: Path,
    training: Path,
    history: Path,
    images: Path,
    captions: Path,
    page: Path,
    params: Path,
) -> None:
    """Write PAGE from METRICS, INTERVALS, RANKS, BASELINE, TRAINING, HISTORY and the catalog."""
    settings = load_section(params, "report", Report)
    places = Places(metrics, intervals, ranks, baseline, training, history, images, captions)
    write_page(page, places, settings, load_key(params, "catalog", "root"))


if __name__ == "__main__":
    main()
