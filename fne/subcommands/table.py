"""`fne table`: its arguments and its help; `fne.commands` does the work."""

from pathlib import Path

import click

from fne.core.command import OUTPUT, params_option


@click.command()
@click.argument("number", required=False, type=click.Choice(["2", "3", "4", "5"]))
@click.option(
    "--compare", nargs=2, metavar="A B", help="Say whether two experiments differ; 'workspace' is one too."
)
@click.option("--dry", is_flag=True, help="Print the commands of the experiments that are missing.")
@click.option("--queue", is_flag=True, help="Put the missing experiments into DVC's queue, after asking.")
@click.option("--run", is_flag=True, help="Run the missing experiments, after asking; then show the table.")
@click.option("--yes", is_flag=True, help="With --queue or --run: do not ask.")
@click.option("--seeds", type=click.IntRange(1), default=1, show_default=True, help="Runs of each method.")
@click.option("--model", "models", multiple=True, help="Only the missing ones of this method; repeatable.")
@click.option(
    "--following",
    type=click.Choice(["paper", "code"]),
    default="paper",
    show_default=True,
    help="With --dry, --queue or --run: as for `fne preset`.",
)
@click.option("--dataset", type=click.Choice(["demo"]), help="Try a table on the embedded data set.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "markdown", "csv", "html"]),
    default="text",
    show_default=True,
    help="How the table is written.",
)
@click.option("--output", type=OUTPUT, help="Write to this file instead of printing.")
@params_option
def table(
    number: str | None,
    compare: tuple[str, str] | None,
    dry: bool,
    queue: bool,
    run: bool,
    yes: bool,
    seeds: int,
    models: tuple[str, ...],
    following: str,
    dataset: str | None,
    form: str,
    output: Path | None,
    params: Path,
) -> None:
    """Show a table of the paper with our results in it.

    \b
      fne table 2                                     printed rows, ours, the differences
      fne table 2 --format html --output table2.html
      fne table 2 --dry --model FNE-SH                what is missing, and the hours it takes
      fne table 5 --seeds 5 --run                     how often MOE starts, beside the paper's
      fne table --compare workspace hexed-orle        do two experiments differ?

    Missing experiments run one after the other in temporary copies of the project, as
    `dvc exp run --temp` does it. What has finished is kept: the same command goes on from there.

    A result stands in a row of the paper only if its data set, splits, weights (Caffe's
    VGG16), layers and settings are the paper's. All others get rows of their own, below,
    that say what they are. Results are found in the work tree and among DVC's experiments.

    --compare draws the test images again and again to see how far the difference of two
    experiments would vary. Experiments that differ in train.seed alone count as seeds of one;
    with fewer than five seeds on a side it does not say which one is better.
    """
    planning = dry or queue or run
    if (number is None) == (compare is None):
        raise click.UsageError("give the number of a table (2, 3, 4 or 5), or --compare A B")
    if dry + queue + run > 1:
        raise click.UsageError("give one of --dry, --queue and --run")
    if compare is not None and planning:
        raise click.UsageError("--dry, --queue and --run need the number of a table")
    if (models or yes or seeds > 1 or following != "paper") and not planning:
        raise click.UsageError("--model, --seeds, --following and --yes need --dry, --queue or --run")
    if number is not None and planning:
        from fne.commands.launching import enqueue, run_all
        from fne.commands.plan import listed, propose

        lacking, cost = propose(int(number), dataset, following, seeds, models, params, strict=not dry)
        click.echo(listed(lacking, cost, commands=not run), err=run)
        if lacking and queue and _agreed("Queue", len(lacking), yes):
            enqueue(lacking)
        if lacking and run and _agreed("Run", len(lacking), yes):
            run_all(lacking, cost)
        if not run:
            return
    from fne.commands import table as work
    from fne.paper.grids import FORMATS
    from fne.store.files import write_text

    grids = work.comparison(*compare) if compare else work.table(int(number or 0), dataset)
    made = FORMATS[form](grids)
    if output:
        write_text(output, made + "\n")
    else:
        click.echo(made)


def _agreed(what: str, count: int, yes: bool) -> bool:
    return yes or click.confirm(f"{what} these {count}?", err=True)
