"""Stage `probe_layers`: what each layer of the activations knows of captions and labels."""

from pathlib import Path

import click

from fne.core import stat_cache
from fne.core.device import prepare_device
from fne.core.errors import InputError
from fne.core.options import INPUT, OUTPUT, params_option
from fne.core.settings import load_key, load_runtime, load_section
from fne.core.stage import stage
from fne.core.terminal import say
from fne.probing.measure import measure
from fne.probing.results import chosen, write_layers
from fne.probing.settings import Layers
from fne.store.catalog import read_captions
from fne.store.lineage import recorded_lineage
from fne.store.rows import Rows
from fne.text.tokens import read_tokens


@stage("layers", "embed.source", paths=["embed.source"])
@click.argument("captions", type=INPUT)
@click.argument("tokens", type=INPUT)
@click.argument("metrics", type=OUTPUT)
@params_option
def main(captions: Path, tokens: Path, metrics: Path, params: Path) -> None:
    """Measure every layer of the store `embed.source` with CAPTIONS and their TOKENS, and write METRICS."""
    settings, runtime = load_section(params, "layers", Layers), load_runtime(params)
    stat_cache.use(runtime.scratch_folder())
    prepare_device(runtime)
    source = load_key(params, "embed", "source")
    rows = Rows.open(Path(source))
    if rows.without_rows or not rows.layers:
        raise InputError(f"{source}: has no rows to measure; set embed.source to a store with layers")
    captioned, catalog = read_captions(captions)
    words = read_tokens(tokens)
    found = measure(rows, captioned, words if words.ids else None, settings)
    lineage = recorded_lineage(rows.artifact, catalog, words.artifact)
    write_layers(metrics, found, settings.model_dump() | {"source": source}, lineage)
    for line in chosen(found) or ["no captions: recall and similarity with the text were not measured"]:
        say(line)


if __name__ == "__main__":
    main()
