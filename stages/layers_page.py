"""Stage `layers_page`: one page that shows what each layer knows."""

from pathlib import Path

import click

from fne.core.files import write_text
from fne.core.options import INPUT, OUTPUT, params_option
from fne.core.settings import load_key
from fne.core.stage import stage
from fne.probing.results import read_layers
from fne.report.frame import PageSource
from fne.report.layers_page import PAGE, pictured, render_layers


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
    source = PageSource.read(artifact, images, captions, root)
    write_text(page, render_layers(found, source.frame(PAGE, {}, pictured(found))))


if __name__ == "__main__":
    main()
