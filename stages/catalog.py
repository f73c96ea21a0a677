"""Stage `catalog`: which images and captions a data set has."""

from pathlib import Path

import click

from fne.core.command import OUTPUT, params_option
from fne.core.params import load_section
from fne.core.runtime import load_runtime
from fne.datasets.catalog import build_catalog, check_catalog
from fne.datasets.location import dataset_root
from fne.datasets.readers import read_dataset
from fne.datasets.rejects import refuse_rejects, write_rejects
from fne.datasets.settings import Catalog
from fne.datasets.summary import summary
from fne.datasets.tracking import warn_if_untracked
from fne.store.catalog import write_captions, write_images


@click.command()
@click.argument("images", type=OUTPUT)
@click.argument("captions", type=OUTPUT)
@click.argument("rejects", type=OUTPUT)
@params_option
def main(images: Path, captions: Path, rejects: Path, params: Path) -> None:
    """List the data set's IMAGES and CAPTIONS, and what is unusable in REJECTS."""
    settings = load_section(params, "catalog", Catalog)
    runtime = load_runtime(params)
    root, annotations = dataset_root(settings.root, settings.format, settings.annotations)
    warn_if_untracked(Path(settings.root), root)
    remembered = runtime.scratch_folder() / "catalog"
    reading = read_dataset(root, settings.format, annotations)
    built = build_catalog(root, reading, settings.images, settings.splitting, runtime.workers, remembered)
    write_rejects(rejects, built.rejects)
    refuse_rejects(rejects, built.rejects, settings.max_rejects)
    check_catalog(root, built)
    write_images(images, built.images)
    write_captions(captions, built.captioned)
    click.echo(summary(built, rejects))


if __name__ == "__main__":
    main()
