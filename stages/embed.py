"""Stage `embed`: the image embeddings that training uses."""

from pathlib import Path

import click

from fne.core.command import INPUT, OUTPUT, params_option
from fne.core.params import load_section
from fne.features.embeddings import EMBEDDINGS, Choices, embed_shards
from fne.features.settings import Embed
from fne.features.statistics import Statistics
from fne.store.arrays import read_arrays
from fne.store.lineage import merge
from fne.store.rows import Rows
from fne.store.writer import write_rows


@click.command()
@click.argument("activations", type=INPUT)
@click.argument("statistics", type=INPUT)
@click.argument("embeddings", type=OUTPUT)
@params_option
def main(activations: Path, statistics: Path, embeddings: Path, params: Path) -> None:
    """Turn ACTIVATIONS into EMBEDDINGS, by the STATISTICS of the training images."""
    settings = load_section(params, "embed", Embed)
    rows = Rows.open(activations, "activations")
    fitted = read_arrays(statistics, "statistics")
    lineage = merge(rows.artifact, fitted.artifact)
    ordinary = Statistics(fitted["mean"], fitted["deviation"], fitted.artifact.settings["images"])
    choices = Choices(settings.low, settings.high, settings.layer)
    embedding = EMBEDDINGS[settings.kind](rows, ordinary, choices)
    shards = embed_shards(rows, embedding)
    write_rows(
        embeddings, "embeddings", embedding.layers, embedding.dtype, shards, settings.model_dump(), lineage
    )
    width = sum(layer.features for layer in embedding.layers)
    click.echo(f"{len(rows.ids)} images, {width} values each ({embedding.dtype})")


if __name__ == "__main__":
    main()
