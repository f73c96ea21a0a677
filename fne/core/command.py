"""What the stages and the `fne` command share at the command line."""

from pathlib import Path

import click

INPUT = click.Path(path_type=Path)
OUTPUT = click.Path(path_type=Path)

params_option = click.option(
    "--params",
    type=click.Path(path_type=Path),
    default=Path("params.yaml"),
    show_default=True,
    help="The parameter file.",
)
