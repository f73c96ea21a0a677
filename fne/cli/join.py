"""`fne join`: several stores of activations as one that `embed.source` can name."""

from pathlib import Path

import click

from fne.cli.import_ import check_target
from fne.core.options import INPUT
from fne.core.terminal import say
from fne.features.join import APPENDED, JOINED, append_stores, join_stores


@click.command()
@click.argument("stores", nargs=-1, required=True, type=INPUT)
@click.option("--to", type=INPUT, default=Path("features/joined"), show_default=True, help="The new store.")
@click.option("--common", is_flag=True, help="Keep the images that all stores have.")
@click.option("--rows", "by_rows", is_flag=True, help="Join the rows instead: other images, the same layers.")
def join(stores: tuple[Path, ...], to: Path, common: bool, by_rows: bool) -> None:
    """Join row stores of activations: the layers of all, side by side.

    STORES were extracted, or imported with `fne import`. Each needs a row for the same images. A layer
    name that several stores have is prefixed with the name of the store's folder. `embed.source` then names
    the new store.

    With --rows, the new store has the rows of all STORES, to add images to a store. They need the same
    layers, type of values and network. An id that several have must have the same row.
    """
    if by_rows and common:
        raise click.UsageError("--common is for joining layers; --rows keeps all images")
    check_target(to)
    rows = append_stores(stores, to) if by_rows else join_stores(stores, to, common)
    size = sum(file.stat().st_size for file in to.iterdir())
    say(f"{to}: {len(rows.ids)} rows of {rows.features} values ({rows.dtype}), {size:,} bytes")
    settings = rows.artifact.settings
    for source, recorded in zip(stores, settings[APPENDED if by_rows else JOINED], strict=True):
        what = f"{recorded['rows']} rows" if by_rows else ", ".join(recorded["layers"])
        say(f"  {source}    {what}")
    say("next:")
    say(f"  dvc add {to}    # keep it in DVC, for colleagues and for experiments in temporary copies")
    say(f"  dvc exp run -S embed.source={to}")
