"""`fne preset`: its arguments and its help; `fne.commands` does the work."""

import click


@click.command()
@click.argument("name", required=False)
@click.option(
    "--dataset",
    type=click.Choice(["flickr8k", "flickr30k", "coco", "demo"]),
    default="flickr8k",
    show_default=True,
    help="Whose dimensions and epochs; demo has small ones, for the embedded data set.",
)
@click.option(
    "--following",
    type=click.Choice(["paper", "code"]),
    default="paper",
    show_default=True,
    help="The paper's equations and tables, or its authors' published code where that differs.",
)
@click.option("--list", "list_all", is_flag=True, help="Show all presets for the data set, with footnotes.")
def preset(name: str | None, dataset: str, following: str, list_all: bool) -> None:
    """Print a method of the paper as overrides for DVC.

    \b
      fne preset --list                                         all of them
      fne preset FNE-POE --dataset flickr8k                     one, as -S arguments
      dvc exp run $(fne preset FNE-POE --dataset flickr8k)      run it
      dvc exp run $(fne preset FNE-SH --dataset demo)           try one on the embedded data set

    A preset sets all that decides the embedding, the words and the training. The data
    set's folder (catalog.root) and the network's weights (extract.weights) stay as params.yaml
    has them. Footnotes go to standard error. (In fish, write (fne preset … | string split " ").)
    """
    from fne.commands import preset as work
    from fne.paper.presets import preset as find

    if list_all == (name is not None):
        raise click.UsageError("give the NAME of a preset, or --list")
    if name is None:
        click.echo(work.listed(dataset, following))
    else:
        chosen = find(name, dataset, following)
        click.echo(work.footnotes(chosen), err=True)
        click.echo(work.overrides(chosen))
