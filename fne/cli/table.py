"""`fne table`: a paper's table with the results of this project, or its missing experiments."""

from pathlib import Path

import click

from fne.core.files import write_text
from fne.core.options import OUTPUT, params_option
from fne.core.outputs import check_output
from fne.core.terminal import say
from fne.experiments.grids import FORMATS, Grid
from fne.experiments.paper_claims import claims_tables
from fne.experiments.runs import open_runs
from fne.experiments.tables import check_address, is_table, list_of_tables, table_grids

CLAIMS = "claims"


@click.command()
@click.argument("address", metavar="[TABLE]", required=False)
@click.option("--list", "list_all", is_flag=True, help="List all tables with their addresses.")
@click.option("--dry", is_flag=True, help="Print the commands that queue the missing experiments in DVC.")
@click.option(
    "--seeds", type=click.IntRange(1), default=1, show_default=True, help="Number of runs per method."
)
@click.option("--model", "models", multiple=True, help="Only missing experiments of this method; repeatable.")
@click.option(
    "--following",
    type=click.Choice(["paper", "code"]),
    default="paper",
    show_default=True,
    help="With --dry: as for `fne preset`.",
)
@click.option(
    "--own-rows",
    is_flag=True,
    help="With --dry: also where results get rows of their own, not rows of the paper.",
)
@click.option("--dataset", type=click.Choice(["demo"]), help="Use the embedded data set.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "markdown", "csv", "html"]),
    default="text",
    show_default=True,
    help="The output format.",
)
@click.option("--output", type=OUTPUT, help="Write to this file instead of standard output.")
@params_option
def table(
    address: str | None,
    list_all: bool,
    dry: bool,
    seeds: int,
    models: tuple[str, ...],
    following: str,
    own_rows: bool,
    dataset: str | None,
    form: str,
    output: Path | None,
    params: Path,
) -> None:
    """Show a table of a paper next to the results of this project.

    \b
      fne table --list                                the tables of all papers
      fne table 2                                     printed rows, own rows, differences
      fne table two-branch/1                          a table of another paper
      fne table semantic/2                            a table about tags, with own runs below
      fne table 2 --format html --output table2.html
      fne table 2 --dry --model FNE-SH                the commands of missing experiments
      fne table 2 --dry                               a shell runs them, then `dvc queue start`
      fne table 2 --dry --own-rows                    its methods with your own weights or images
      fne table 5 --dry --seeds 5                     how often does the training of MOE start?
      fne table claims                                the paper's claims, from its tables and from own runs

    A result is shown in a row of the paper only if its data set, splits, weights (Caffe's
    VGG16), layers and settings are those of the paper. All other results get their own rows
    below, with a description. Results are read from the workspace and from DVC's experiments.
    An experiment is missing only if its result would appear in a row of the paper. With other
    weights, images or imported features, --own-rows plans all methods of the table.

    Own runs that belong to no row are listed with the best validation first. `fne compare A B`
    compares two of them.
    """
    if output:
        check_output(output, "--output", is_table)
    if (address is not None) + list_all != 1:
        raise click.UsageError("give a table (2, 3, 4, 5, …; see --list), claims, or --list")
    if (models or seeds > 1 or following != "paper" or own_rows) and not dry:
        raise click.UsageError("--model, --seeds, --following and --own-rows need --dry")
    if address in (None, CLAIMS) and (dry or dataset):
        raise click.UsageError("--dry and --dataset need a table")
    if address is not None and address != CLAIMS:
        check_address(address)
    if dry and address is not None:
        from fne.experiments.missing_experiments import plan_missing  # torch: slow to import

        say(plan_missing(address, dataset, following, seeds, models, params, own_rows))
        return
    text = FORMATS[form](_grids(address, dataset))
    if output:
        check_output(output, "--output", is_table)
        write_text(output, text + "\n")
    else:
        say(text)


def _grids(address: str | None, dataset: str | None) -> list[Grid]:
    """Return what is asked for, with the results of the project in the current folder."""
    if address is None:
        return list_of_tables()
    with open_runs(Path()) as project:
        return claims_tables(project.runs()) if address == CLAIMS else table_grids(address, project, dataset)
