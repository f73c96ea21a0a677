"""`fne import`: its arguments and its help; `fne.commands` does the work."""

from pathlib import Path

import click

from fne.core.command import INPUT


@click.command("import")
@click.argument("file", type=INPUT)
@click.option("--to", type=INPUT, default=Path("features/imported"), show_default=True, help="The new store.")
@click.option("--values", metavar="NAME", help="The array of rows and columns.")
@click.option("--ids", metavar="NAME", help="The array of row ids.")
@click.option("--ids-file", type=INPUT, help="A text file with an id a line, in place of an array.")
@click.option("--layers", metavar="NAME", help="The array with the layer of each column.")
@click.option("--catalog", type=INPUT, help="Whose images need a row.  [default: data/captions.jsonl]")
def import_(
    file: Path,
    to: Path,
    values: str | None,
    ids: str | None,
    ids_file: Path | None,
    layers: str | None,
    catalog: Path | None,
) -> None:
    """Bring in features that others computed, as a store of our own.

    FILE is HDF5, .npy or .npz, with a row for each image and the images' ids as in the
    catalog. Arrays need to be named only where several would do. Nothing in the file is
    executed, and nothing outside it is read. `embed.source` then names the store.
    """
    from fne.commands.bring import bring
    from fne.store.chosen import Names

    click.echo(bring(file, to, Names(values, ids, layers), ids_file, catalog))
