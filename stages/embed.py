"""Stage `embed`: the image embeddings that training uses."""

from pathlib import Path

import click

from fne.core import stat_cache
from fne.core.options import INPUT, OUTPUT, params_option
from fne.core.settings import load_runtime, load_section
from fne.core.stage import stage
from fne.core.terminal import say
from fne.features.embeddings import EMBEDDINGS, Embed
from fne.features.standardize import read_statistics
from fne.features.write_embeddings import format_fractions, open_source, write_embeddings
from fne.store.lineage import recorded_lineage


@stage("embed", paths=["embed.source"])
@click.argument("statistics", type=INPUT)
@click.argument("embeddings", type=OUTPUT)
@params_option
def main(statistics: Path, embeddings: Path, params: Path) -> None:
    """Turn the store `embed.source` into EMBEDDINGS, using the STATISTICS of the training images."""
    section = load_section(params, "embed", Embed)
    stat_cache.use(load_runtime(params).scratch_folder())
    rows = open_source(Path(section.source))
    ordinary, fitted = read_statistics(statistics)
    lineage = recorded_lineage(rows.artifact, fitted)
    embedding = EMBEDDINGS[section.kind](rows, ordinary, section.choices())
    # The folder of the activations does not identify them; their digest is in the lineage.
    settings = section.model_dump(exclude={"source"})
    written = write_embeddings(embeddings, rows, embedding, settings, lineage)
    width = sum(layer.features for layer in embedding.layers)
    say(f"{len(rows.ids)} images, {width} values each ({embedding.dtype})")
    for line in format_fractions(written):
        say(line)


if __name__ == "__main__":
    main()
