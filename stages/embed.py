"""Stage `embed`: the image embeddings that training uses."""

from pathlib import Path

import click

from fne.core.command import INPUT, OUTPUT, params_option
from fne.core.params import load_section
from fne.features.embed import write_embeddings
from fne.features.embeddings import EMBEDDINGS, Choices
from fne.features.settings import Embed
from fne.features.shares import in_words
from fne.features.source import open_source
from fne.features.statistics import read_statistics
from fne.store.lineage import merge


@click.command()
@click.argument("statistics", type=INPUT)
@click.argument("embeddings", type=OUTPUT)
@params_option
def main(statistics: Path, embeddings: Path, params: Path) -> None:
    """Turn the store `embed.source` into EMBEDDINGS, by the STATISTICS of the training images."""
    section = load_section(params, "embed", Embed)
    rows = open_source(Path(section.source))
    ordinary, fitted = read_statistics(statistics)
    lineage = merge(rows.artifact, fitted)
    choices = Choices(section.low, section.high, section.layer, section.layers, section.thresholds)
    embedding = EMBEDDINGS[section.kind](rows, ordinary, choices)
    # Where the activations stand says nothing about them; their digest is in the lineage.
    settings = section.model_dump(exclude={"source"})
    written = write_embeddings(embeddings, rows, embedding, settings, lineage)
    width = sum(layer.features for layer in embedding.layers)
    click.echo(f"{len(rows.ids)} images, {width} values each ({embedding.dtype})")
    for line in in_words(written):
        click.echo(line)


if __name__ == "__main__":
    main()
