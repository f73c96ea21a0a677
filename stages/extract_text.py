"""Stage `extract_text`: the activations of all blocks of a text network for every caption."""

from pathlib import Path

import click

from fne.core import stat_cache
from fne.core.device import prepare_device
from fne.core.options import INPUT, OUTPUT, params_option
from fne.core.settings import load_runtime, load_section
from fne.core.stage import stage
from fne.extraction.text_networks import open_text_network
from fne.extraction.text_rows import caption_texts, extract_text, open_scratch
from fne.extraction.text_settings import ExtractText
from fne.store.artifact import Sections
from fne.store.catalog import read_captions
from fne.store.lineage import recorded_lineage
from fne.store.rows import write_rows


@stage("extract_text", paths=["extract_text.network"])
@click.argument("captions", type=INPUT)
@click.argument("activations", type=OUTPUT)
@params_option
def main(captions: Path, activations: Path, params: Path) -> None:
    """Compute the ACTIVATIONS of all blocks of a text network for all CAPTIONS."""
    settings, runtime = load_section(params, "extract_text", ExtractText), load_runtime(params)
    stat_cache.use(runtime.scratch_folder())
    captioned, catalog = read_captions(captions)
    texts = caption_texts(captioned)
    network = open_text_network(Path(settings.network), settings.tokens, prepare_device(runtime))
    scratch = open_scratch(runtime.scratch_folder(), network)
    shards = extract_text(texts, network, scratch, settings.shards)
    lineage = recorded_lineage(catalog, network.artifact)
    made_in: Sections = {"extract_text": {}}
    made_with = network.kind
    write_rows(
        activations,
        "caption_features",
        network.layers,
        "float32",
        shards,
        made_with,
        lineage,
        sections=made_in,
    )


if __name__ == "__main__":
    main()
