"""Stage `render`: draw the demo data set."""

from pathlib import Path

import click

from fne.core.options import OUTPUT, params_option
from fne.core.settings import load_section
from fne.core.stage import stage
from fne.core.terminal import say
from fne.datasets.demo.dataset import SPLITS, Render, write_dataset


@stage("render")
@click.argument("dataset", type=OUTPUT)
@params_option
def main(dataset: Path, params: Path) -> None:
    """Draw the demo data set, scenes and sentences, into the folder DATASET."""
    settings = load_section(params, "render", Render)
    counts = write_dataset(settings, dataset)
    splits = ", ".join(f"{counts[split]} {split}" for split in SPLITS)
    say(f"{dataset}: {counts.total()} images ({splits}), five sentences each")


if __name__ == "__main__":
    main()
