"""Options and argument types of the command line, common to the stages and the `fne` command."""

from pathlib import Path

import click

# `fne.core.stage` knows the inputs and outputs of a stage by these types.
INPUT = click.Path(path_type=Path)
OUTPUT = click.Path(path_type=Path)
# Written at once, because it says why a stage stops.
TABLE = click.Path(path_type=Path)

params_option = click.option(
    "--params",
    type=click.Path(path_type=Path),
    default=Path("params.yaml"),
    show_default=True,
    help="The parameter file.",
)

model_option = click.option(
    "--model",
    type=click.Choice(["matching", "tuned"]),
    default="matching",
    show_default=True,
    help="The model to search with; tuned is that of the fine-tuned network.",
)
