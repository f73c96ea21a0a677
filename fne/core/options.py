"""Options and argument types of the command line, common to the stages and the `fne` command."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

# `fne.core.stage` knows the inputs and outputs of a stage by these types.
INPUT = click.Path(path_type=Path)
OUTPUT = click.Path(path_type=Path)
# Written at once, because it says why a stage stops.
TABLE = click.Path(path_type=Path)


class _Files(click.Path):
    """A folder, with the names of those of its files and stores that a stage deals with."""

    def __init__(self, *names: str) -> None:
        super().__init__(path_type=Path)
        self.names = names


class InputFiles(_Files):
    """A folder of which a stage reads what is named; other files in it may change."""


class OutputFiles(_Files):
    """A folder in which a stage writes what is named; other files in it stay."""


params_option = click.option(
    "--params",
    type=click.Path(path_type=Path),
    default=Path("params.yaml"),
    show_default=True,
    help="The parameter file.",
)

format_option = click.option(
    "--format",
    "form",
    type=click.Choice(["text", "markdown", "csv"]),
    default="text",
    show_default=True,
    help="The format of the tables.",
)

reader_option = click.option(
    "--reader",
    type=(INPUT, INPUT, INPUT),
    metavar="MODEL VOCABULARY VECTORS",
    help="Show which words matter for this model, given its vocabulary and its vectors of images.",
)


def model_option(*models: str) -> Callable[[Command], Command]:
    """Return the option that chooses what to search with; the first is the default."""
    return click.option(
        "--model",
        type=click.Choice(models),
        default=models[0],
        show_default=True,
        help="The model to use; tuned is that of the fine-tuned network.",
    )
