"""Stage `render`: draw the demo's data set."""

from pathlib import Path

import click

from fne.core.command import OUTPUT, params_option
from fne.core.params import load_section
from fne.datasets.world import SPLITS, Render, write_world


@click.command()
@click.argument("world", type=OUTPUT)
@params_option
def main(world: Path, params: Path) -> None:
    """Draw the demo's scenes and their sentences into the folder WORLD."""
    settings = load_section(params, "render", Render)
    counts = write_world(settings, world)
    shares = ", ".join(f"{counts[split]} {split}" for split in SPLITS)
    click.echo(f"{world}: {counts.total()} images ({shares}), five sentences each")


if __name__ == "__main__":
    main()
