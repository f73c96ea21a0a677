"""Stage `layers_page`: one page that shows what each layer knows."""

import os
from pathlib import Path

import click

from fne.core.files import write_text
from fne.core.options import INPUT, OUTPUT, params_option
from fne.core.settings import load_key
from fne.core.stage import input_digests, stage
from fne.probing.results import read_layers
from fne.report.facts import head
from fne.report.layers_page import PAGE, pictured, render_layers
from fne.report.page import EXPERIMENT, make_thumbnails
from fne.report.record import page_record
from fne.store.catalog import image_root, read_captions, read_images
from fne.store.lineage import recorded_lineage


@stage("catalog.root")
@click.argument("metrics", type=INPUT)
@click.argument("images", type=INPUT)
@click.argument("captions", type=INPUT)
@click.argument("page", type=OUTPUT)
@params_option
def main(metrics: Path, images: Path, captions: Path, page: Path, params: Path) -> None:
    """Write PAGE from the METRICS of `probe_layers`, with IMAGES and CAPTIONS of the catalog."""
    root = load_key(params, "catalog", "root")
    found, artifact = read_layers(metrics)
    catalog, images_artifact = read_images(images)
    captioned, captions_artifact = read_captions(captions)
    # Without image files there is none that could be of another data set.
    lineage = recorded_lineage(artifact, captions_artifact, *[images_artifact] * bool(catalog))
    thumbnails = make_thumbnails(pictured(found), catalog, image_root(root))
    record = page_record({"root": root}, lineage, input_digests(), PAGE)
    about = head(lineage, root, captioned, os.environ.get(EXPERIMENT))
    write_text(page, render_layers(found, lineage, about, thumbnails, record))


if __name__ == "__main__":
    main()
