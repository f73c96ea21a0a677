"""Stage `standardize`: what is ordinary for each feature among the training images."""

from pathlib import Path

import click

from fne.core.command import INPUT, OUTPUT, params_option
from fne.core.errors import InputError
from fne.core.params import load_key
from fne.features.source import open_source
from fne.features.statistics import fit
from fne.store.arrays import write_arrays
from fne.store.catalog import read_captions, read_images, split_artifact, split_ids
from fne.store.lineage import merge


@click.command()
@click.argument("images", type=INPUT)
@click.argument("captions", type=INPUT)
@click.argument("statistics", type=OUTPUT)
@params_option
def main(images: Path, captions: Path, statistics: Path, params: Path) -> None:
    """Fit mean and deviation of the store `embed.source` over the training images of CAPTIONS.

    A store that was made from other files than IMAGES lists is refused, and not hours later.
    A collection without any captions has no training images: there, all images count.
    """
    captioned, _ = read_captions(captions)
    listed, files = read_images(images)
    source = Path(load_key(params, "embed", "source"))
    rows = open_source(source, [record.id for record in captioned], files if listed else None)
    split = "gallery" if all(record.split == "gallery" for record in captioned) else "train"
    ids = split_ids(captioned, split)
    if not ids:
        raise InputError(f"{captions}: has no {split} images to standardize by; see `catalog` in params.yaml")
    fitted = fit(rows, ids)
    constant = len(fitted.mean) - int(fitted.varies.sum())
    click.echo(f"{len(ids)} {split} images, {len(fitted.mean)} features, {constant} of them constant (z = 0)")
    write_arrays(
        statistics,
        "statistics",
        {"mean": fitted.mean, "deviation": fitted.deviation, "ids": ids},
        {"images": len(ids), "split": split, "constant_features": constant},
        merge(rows.artifact, split_artifact(captions, captioned, split)),
    )


if __name__ == "__main__":
    main()
