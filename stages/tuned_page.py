"""Stage `tuned_page`: the page of the tuned model, with what it gained over the model before it."""

from pathlib import Path

import click

from fne.core.options import INPUT, OUTPUT, InputFiles, params_option, reader_option
from fne.core.settings import load_key, load_section
from fne.core.stage import stage
from fne.experiments.presets import FOLDER
from fne.report.retrieval_page import Places, TuningPlaces, write_page
from fne.report.settings import Report
from fne.store.catalog import CAPTIONS_FILE, IMAGES_FILE

METRICS = ("tuned.json", "tuned_intervals.json", "tuned_ranks.h5", "baseline.json", "training.json")
TUNING = ("tuning.json", "ranks.h5")  # the fine-tuning, and the model before it


@stage("report", "catalog.root", files=[FOLDER])
@click.argument("metrics", type=InputFiles(*METRICS, *TUNING))
@click.argument("history", type=INPUT)
@click.argument("tuning_history", type=INPUT)
@click.argument("catalog", type=InputFiles(IMAGES_FILE.name, CAPTIONS_FILE.name))
@click.argument("page", type=OUTPUT)
@reader_option
@params_option
def main(
    metrics: Path,
    history: Path,
    tuning_history: Path,
    catalog: Path,
    page: Path,
    reader: tuple[Path, Path, Path] | None,
    params: Path,
) -> None:
    """Write PAGE as `report` does, from the METRICS of the tuned model and of the one before it."""
    settings = load_section(params, "report", Report)
    images, captions = catalog / IMAGES_FILE.name, catalog / CAPTIONS_FILE.name
    retrieval, intervals, ranks, baseline, training = (metrics / name for name in METRICS)
    places = Places(retrieval, intervals, ranks, baseline, training, history, images, captions, reader)
    tuning, ranks_before = (metrics / name for name in TUNING)
    tuned = TuningPlaces(tuning, tuning_history, ranks_before)
    write_page(page, places, settings, load_key(params, "catalog", "root"), tuned)


if __name__ == "__main__":
    main()
