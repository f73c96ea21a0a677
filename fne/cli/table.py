"""`fne table`: a paper's table with the results of this project, or its missing experiments."""

import re
from pathlib import Path

import click

from fne.core.errors import InputError
from fne.core.files import write_text
from fne.core.options import OUTPUT, params_option
from fne.core.outputs import check_output
from fne.core.terminal import say
from fne.papers.claims import claims_tables
from fne.papers.descriptions import SECTIONS, description_grids
from fne.papers.results import COLUMNS, START_COLUMNS, list_of_tables, results_table, starts_table
from fne.papers.runs import open_project
from fne.papers.tables import (
    FORMATS,
    GENERATOR,
    STARTS,
    Grid,
    check_address,
    description_tables,
    load_table,
)

TITLE = re.compile(r"(?:[a-z-]+, )?Table [0-9a-z]+: .*")

CLAIMS = "claims"


@click.command()
@click.argument("address", metavar="[TABLE]", required=False)
@click.option("--list", "list_all", is_flag=True, help="List all tables with their addresses.")
@click.option("--compare", nargs=2, hidden=True)
@click.option("--dry", is_flag=True, help="Print the commands of the missing experiments.")
@click.option(
    "--hours", is_flag=True, help="With --dry: also say how long they take; timing an epoch takes a minute."
)
@click.option("--queue", is_flag=True, help="Queue the missing experiments in DVC, after confirmation.")
@click.option(
    "--run", is_flag=True, help="Run the missing experiments, after confirmation; then show the table."
)
@click.option("--yes", is_flag=True, help="With --queue or --run: skip the confirmation.")
@click.option(
    "--seeds", type=click.IntRange(1), default=1, show_default=True, help="Number of runs per method."
)
@click.option("--model", "models", multiple=True, help="Only missing experiments of this method; repeatable.")
@click.option(
    "--following",
    type=click.Choice(["paper", "code"]),
    default="paper",
    show_default=True,
    help="With --dry, --queue or --run: as for `fne preset`.",
)
@click.option(
    "--own-rows",
    is_flag=True,
    help="With --dry, --queue or --run: also where results get rows of their own, not rows of the paper.",
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
    compare: tuple[str, str] | None,
    dry: bool,
    hours: bool,
    queue: bool,
    run: bool,
    yes: bool,
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
      fne table 2 --dry --hours                       and how long they take here
      fne table 2 --own-rows --run                    its methods with your own weights or images
      fne table 5 --seeds 5 --run                     how often the training of MOE starts
      fne table claims                                the paper's claims, from its tables and from own runs

    Missing experiments run one after the other in temporary copies of the project, as with
    `dvc exp run --temp`. Finished experiments are kept: the same command continues from there.

    A result is shown in a row of the paper only if its data set, splits, weights (Caffe's
    VGG16), layers and settings are those of the paper. All other results get their own rows
    below, with a description. Results are read from the workspace and from DVC's experiments.
    An experiment is missing only if its result would appear in a row of the paper. With other
    weights, images or imported features, --own-rows plans all methods of the table.

    Own runs that belong to no row are listed with the best validation first. `fne compare A B`
    compares two of them.
    """
    planning = dry or queue or run
    if output:
        check_output(output, "--output", is_table)
    if compare:
        raise click.UsageError(f"--compare is a command of its own now: fne compare {' '.join(compare)}")
    if (address is not None) + list_all != 1:
        raise click.UsageError("give a table (2, 3, 4, 5, …; see --list), claims, or --list")
    if dry + queue + run > 1:
        raise click.UsageError("give one of --dry, --queue and --run")
    if address is None and planning:
        raise click.UsageError("--dry, --queue and --run need a table")
    if (models or yes or seeds > 1 or following != "paper") and not planning:
        raise click.UsageError("--model, --seeds, --following and --yes need --dry, --queue or --run")
    if hours and not dry:
        raise click.UsageError("--hours needs --dry")
    if own_rows and not planning:
        raise click.UsageError("--own-rows needs --dry, --queue or --run")
    if address == CLAIMS and (planning or dataset):
        raise click.UsageError("--dry, --queue, --run and --dataset need a table")
    if address is not None and address != CLAIMS:
        check_address(address)
    if address in description_tables() and planning:
        pipeline = f"{load_table(address)['pipeline']}/dvc.yaml"
        raise InputError(
            f"{address}: the networks of its rows were fine-tuned, so no run of this project can fill them; "
            f"for a row of its own, use `dvc exp run $(fne preset NAME) {pipeline}`"
        )
    if address is not None and planning:
        from fne.cli.experiments import enqueue, format_plan, plan_missing, run_all  # slow to import

        plan = plan_missing(
            address, dataset, following, seeds, models, params, not dry, own_rows, hours or not dry
        )
        say(format_plan(plan, commands=not run), err=run)
        if plan.experiments and queue and _confirmed("Queue", len(plan.experiments), yes):
            enqueue(plan.experiments)
        if plan.experiments and run and _confirmed("Run", len(plan.experiments), yes):
            run_all(plan.experiments, plan.cost)
        if not run:
            return
    if address == CLAIMS:
        grids = claims_grids()
    else:
        grids = results_grids(address, dataset) if address else list_of_tables()
    text = FORMATS[form](grids)
    if output:
        check_output(output, "--output", is_table)
        write_text(output, text + "\n")
    else:
        say(text)


def claims_grids() -> list[Grid]:
    """Return the claims of the paper, from its tables and from the runs of the project in this folder."""
    with open_project(Path()) as project:
        return claims_tables(project.runs())


def results_grids(address: str, dataset: str | None) -> list[Grid]:
    """Return a table of a paper with the results of the project in the current folder."""
    with open_project(Path()) as project:
        if address in description_tables():
            table = load_table(address)
            described = project.described_runs(table["metrics_file"], SECTIONS[table["pipeline"]])
            return description_grids(address, described)
        runs = list(project.runs())
    if address == STARTS:
        return starts_table(runs, dataset or load_table(address)["dataset"])
    return results_table(address, runs)


def is_table(head: bytes) -> bool:
    """Return whether `fne table` wrote a file in any of its formats, given its beginning."""
    text = head.decode(errors="replace")
    first = text.partition("\n")[0]
    headers = [",".join(columns) for columns in (COLUMNS, START_COLUMNS)]
    is_csv = first in headers or first.startswith("model,source,")
    return GENERATOR in text or is_csv or TITLE.fullmatch(first.strip("*")) is not None


def _confirmed(action: str, count: int, yes: bool) -> bool:
    return yes or click.confirm(f"{action} these {count} experiments?", err=True)
