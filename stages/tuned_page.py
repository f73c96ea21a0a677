"""Stage `tuned_page`: the page of the tuned model, with what it gained over the model before it."""

from pathlib import Path

import click

from fne.core.options import INPUT, OUTPUT, params_option
from fne.core.settings import load_key, load_section
from fne.core.stage import stage
from fne.experiments.presets import FOLDER
from fne.report.retrieval_page import Places, TuningPlaces, write_page
from fne.report.settings import Report


@stage("report", "catalog.root", files=[FOLDER])
@click.argument("metrics", type=INPUT)
@click.argument("intervals", type=INPUT)
@click.argument("ranks", type=INPUT)
@click.argument("ranks_before", type=INPUT)
@click.argument("baseline", type=INPUT)
@click.argument("training", type=INPUT)
@click.argument("history", type=INPUT)
@click.argument("tuning", type=INPUT)
@click.argument("tuning_history", type=INPUT)
@click.argument("images", type=INPUT)
@click.argument("captions", type=INPUT)
@click.argument("page", type=OUTPUT)
@params_option
def main(
    metrics: Path,
    intervals: Path,
    ranks: Path,
    ranks_before: Path,
    baseline: Path,
    training: Path,
    history: Path,
    tuning: Path,
    tuning_history: Path,
    images: Path,
    captions: Path,
    page: Path,
    params: Path,
) -> None:
    """Write PAGE as `report` does, with the fine-tuning of TUNING and its HISTORY, and RANKS_BEFORE it."""
    settings = load_section(params, "report", Report)
    places = Places(metrics, intervals, ranks, baseline, training, history, images, captions)
    tuned = TuningPlaces(tuning, tuning_history, ranks_before)
    write_page(page, places, settings, load_key(params, "catalog", "root"), tuned)


if __name__ == "__main__":
    main()
