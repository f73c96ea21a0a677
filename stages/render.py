"""Stage `render`: draw the demo data set."""

from pathlib import Path

import click

from fne.core.files import write_text
from fne.core.options import OUTPUT, params_option
from fne.core.settings import load_section
from fne.core.stage import stage
from fne.core.terminal import say
from fne.datasets.demo.dataset import SPLITS, Render, write_dataset
from fne.datasets.demo.judgments import JUDGES, judgments


@stage("render")
@click.argument("dataset", type=OUTPUT)
@click.argument("judged", type=OUTPUT)
@params_option
def main(dataset: Path, judged: Path, params: Path) -> None:
    """Draw scenes and sentences into the folder DATASET, and grades of pairs into the file JUDGED."""
    settings = load_section(params, "render", Render)
    counts = write_dataset(settings, dataset)
    splits = ", ".join(f"{counts[split]} {split}" for split in SPLITS)
    text = judgments(settings)
    write_text(judged, text)
    say(f"{dataset}: {counts.total()} images ({splits}), five sentences each")
    say(f"{judged}: {len(text.splitlines())} pairs with the grades of {JUDGES} judges")


if __name__ == "__main__":
    main()
