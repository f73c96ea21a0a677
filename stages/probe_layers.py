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
from fne.probing.images import number_words
from fne.probing.measure import measure
from fne.probing.results import chosen, write_layers
from fne.probing.settings import Layers
from fne.store.catalog import read_captions
from fne.store.lineage import recorded_lineage
from fne.store.rows import Rows
from fne.text.vocabulary import Tokenize


@stage("layers", "embed.source", "tokenize", paths=["embed.source"])
@click.argument("captions", type=INPUT)
@click.argument("metrics", type=OUTPUT)
@params_option
def main(captions: Path, metrics: Path, params: Path) -> None:
    """Measure every layer of the store `embed.source` with the captions and tags of CAPTIONS; write METRICS.

    Without captions, layers are still probed for tags or folders. Of a collection without splits, some
    images are drawn that judge.
    """
    settings, runtime = load_section(params, "layers", Layers), load_runtime(params)
    tokenize = load_section(params, "tokenize", Tokenize)
    stat_cache.use(runtime.scratch_folder())
    prepare_device(runtime)
    source = load_key(params, "embed", "source")
    rows = Rows.open(Path(source))
    if rows.without_rows or not rows.layers:
        raise InputError(f"{source}: has no rows to measure; set embed.source to a store with layers")
    captioned, catalog = read_captions(captions)
    found = measure(rows, captioned, number_words(captioned, tokenize), settings)
    lineage = recorded_lineage(rows.artifact, catalog)
    made_with = settings.model_dump() | {"source": source, "tokenize": tokenize.recorded(pretrained=False)}
    write_layers(metrics, found, made_with, lineage)
    for line in chosen(found) or ["no captions: recall and similarity with the text were not measured"]:
        say(line)


if __name__ == "__main__":
    main()
