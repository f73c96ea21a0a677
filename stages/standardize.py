"""Stage `standardize`: what is ordinary for each feature among the training images."""

from pathlib import Path

import click

from fne.core.command import INPUT, OUTPUT
from fne.core.errors import InputError
from fne.features.statistics import fit
from fne.store.arrays import write_arrays
from fne.store.catalog import in_split, read_captions, split_artifact
from fne.store.lineage import merge
from fne.store.rows import Rows


@click.command()
@click.argument("activations", type=INPUT)
@click.argument("captions", type=INPUT)
@click.argument("statistics", type=OUTPUT)
def main(activations: Path, captions: Path, statistics: Path) -> None:
    """Fit mean and deviation of ACTIVATIONS over the training images of CAPTIONS.

    A collection without any captions has no training images: there, all images count.
    """
    rows = Rows.open(activations, "activations")
    captioned, _ = read_captions(captions)
    split = "gallery" if all(record.split == "gallery" for record in captioned) else "train"
    ids = [record.id for record in in_split(captioned, split)]
    if not rows.ids:
        raise InputError(
            f"{activations}: holds no images; with catalog.images 'none' there is nothing to standardize"
        )
    if not ids:
        raise InputError(f"{captions}: has no {split} images to standardize by; see `catalog` in params.yaml")
    fitted = fit(block for _, block in rows.blocks(ids))
    constant = int((fitted.deviation == 0).sum())
    click.echo(
        f"{fitted.images} {split} images, {len(fitted.mean)} features, {constant} of them constant (z = 0)"
    )
    write_arrays(
        statistics,
        "statistics",
        {"mean": fitted.mean, "deviation": fitted.deviation},
        {"images": fitted.images, "split": split, "constant_features": constant},
        merge(rows.artifact, split_artifact(captions, captioned, split)),
    )


if __name__ == "__main__":
    main()
