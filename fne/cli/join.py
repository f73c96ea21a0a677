"""`fne join`: several stores of activations side by side, as one that `embed.source` can name."""

from pathlib import Path

import click

from fne.cli.import_ import check_target
from fne.core.options import INPUT
from fne.core.terminal import say
from fne.features.join import join_stores


@click.command()
@click.argument("stores", nargs=-1, required=True, type=INPUT)
@click.option("--to", type=INPUT, default=Path("features/joined"), show_default=True, help="The new store.")
@click.option("--common", is_flag=True, help="Keep the images that all stores have.")
def join(stores: tuple[Path, ...], to: Path, common: bool) -> None:
    """Join row stores of activations: the layers of all, side by side.

    STORES were extracted, or imported with `fne import`. Each needs a row for the same images. A layer
    name that several stores have is prefixed with the name of the store's folder. `embed.source` then names
    the new store.
    """
    check_target(to)
    rows = join_stores(stores, to, common)
    size = sum(file.stat().st_size for file in to.iterdir())
    say(f"{to}: {len(rows.ids)} rows of {rows.features} values ({rows.dtype}), {size:,} bytes")
    for source, recorded in zip(stores, rows.artifact.settings["joined"], strict=True):
        say(f"  {source}    {', '.join(recorded['layers'])}")
    say("next:")
    say(f"  dvc add {to}    # keep it in DVC, for colleagues and for experiments in temporary copies")
    say(f"  dvc exp run -S embed.source={to}")
