"""Stage `embed_text`: the embeddings of captions that matching uses, from the rows of a text network."""

from pathlib import Path

import click

from fne.core import stat_cache
from fne.core.options import INPUT, OUTPUT, params_option
from fne.core.settings import load_runtime, load_section
from fne.core.stage import stage
from fne.core.terminal import say
from fne.features.embeddings import EMBEDDINGS, EmbedText
from fne.features.standardize import read_statistics
from fne.features.write_embeddings import format_fractions, write_embeddings
from fne.store.lineage import recorded_lineage
from fne.store.rows import Rows


@stage("embed_text", paths=["embed_text.source"])
@click.argument("statistics", type=INPUT)
@click.argument("embeddings", type=OUTPUT)
@params_option
def main(statistics: Path, embeddings: Path, params: Path) -> None:
    """Turn the store `embed_text.source` into EMBEDDINGS, using the STATISTICS of the training captions."""
    section = load_section(params, "embed_text", EmbedText)
    stat_cache.use(load_runtime(params).scratch_folder())
    rows = Rows.open(Path(section.source), "caption_features")
    ordinary, fitted = read_statistics(statistics, of_captions=True)
    lineage = recorded_lineage(rows.artifact, fitted)
    embedding = EMBEDDINGS[section.kind](rows, ordinary, section.choices())
    settings = section.model_dump(exclude={"source"})
    written = write_embeddings(embeddings, rows, embedding, settings, lineage, name="caption_embeddings")
    width = sum(layer.features for layer in embedding.layers)
    say(f"{len(rows.ids)} captions, {width} values each ({embedding.dtype})")
    for line in format_fractions(written):
        say(line)


if __name__ == "__main__":
    main()
