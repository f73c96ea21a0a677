"""Stage `standardize`: mean and deviation of each feature over the training images."""

from pathlib import Path

import click

from fne.core import stat_cache
from fne.core.errors import InputError
from fne.core.options import INPUT, OUTPUT, params_option
from fne.core.settings import load_key, load_runtime
from fne.core.stage import stage
from fne.core.terminal import say
from fne.features.standardize import fit
from fne.features.write_embeddings import open_source
from fne.store.arrays import write_arrays
from fne.store.catalog import read_captions, read_images, split_artifact, split_ids
from fne.store.lineage import check_records, recorded_lineage


@stage("embed.source", paths=["embed.source"])
@click.argument("images", type=INPUT)
@click.argument("captions", type=INPUT)
@click.argument("statistics", type=OUTPUT)
@params_option
def main(images: Path, captions: Path, statistics: Path, params: Path) -> None:
    """Fit mean and deviation of the store `embed.source` over the training images of CAPTIONS.

    A store that was made from other files than IMAGES lists is refused here, before hours of work.
    A collection without captions has no training images: there, all images count.
    """
    stat_cache.use(load_runtime(params).scratch_folder())
    captioned, catalog = read_captions(captions)
    listed, files = read_images(images)
    check_records(catalog, files)
    source = Path(load_key(params, "embed", "source"))
    rows = open_source(source, [record.id for record in captioned], files if listed else None)
    split = "gallery" if all(record.split == "gallery" for record in captioned) else "train"
    ids = split_ids(captioned, split)
    if not ids:
        raise InputError(f"{captions}: has no {split} images to standardize by; see `catalog` in params.yaml")
    fitted = fit(rows, ids)
    constant = len(fitted.mean) - int(fitted.varies.sum())
    say(f"{len(ids)} {split} images, {len(fitted.mean)} features, {constant} of them constant (z = 0)")
    write_arrays(
        statistics,
        "statistics",
        {"mean": fitted.mean, "deviation": fitted.deviation, "ids": ids},
        {"images": len(ids), "split": split, "constant_features": constant},
        recorded_lineage(rows.artifact, split_artifact(captions, captioned, split)),
    )


if __name__ == "__main__":
    main()
