"""Stage `embed_text`: the embeddings of captions that matching uses, from the rows of a text network."""

from pathlib import Path

import click

from fne.core import stat_cache
from fne.core.options import INPUT, OUTPUT, params_option
from fne.core.settings import load_runtime, load_section
from fne.core.stage import stage
from fne.core.terminal import say
from fne.features.embeddings import EMBEDDINGS, EmbedText
from fne.features.standardize import CAPTIONS_LAYOUT, fit, read_statistics
from fne.features.write_embeddings import format_fractions, write_embeddings
from fne.store.arrays import write_arrays
from fne.store.catalog import in_split, read_captions, require_images, split_artifact
from fne.store.lineage import recorded_lineage
from fne.store.rows import Rows


@stage("embed_text", paths=["embed_text.source"])
@click.argument("captions", type=INPUT)
@click.argument("statistics", type=OUTPUT)
@click.argument("embeddings", type=OUTPUT)
@params_option
def main(captions: Path, statistics: Path, embeddings: Path, params: Path) -> None:
    """Fit STATISTICS of the rows over the training CAPTIONS, and turn the rows into EMBEDDINGS."""
    section = load_section(params, "embed_text", EmbedText)
    stat_cache.use(load_runtime(params).scratch_folder())
    captioned, catalog = read_captions(captions)
    rows = Rows.open(Path(section.source), "caption_features")
    training = [record for record in in_split(captioned, "train") if record.captions]
    require_images(training, "train", least=1, purpose="embed_text")
    ids = [each for record in training for each in record.caption_ids]
    fitted = fit(rows, ids, "caption")
    constant = len(fitted.mean) - int(fitted.varies.sum())
    say(f"{len(ids)} training captions, {len(fitted.mean)} features, {constant} of them constant (z = 0)")
    write_arrays(
        statistics,
        CAPTIONS_LAYOUT.name,
        {"mean": fitted.mean, "deviation": fitted.deviation, "ids": ids},
        {"captions": len(ids), "constant_features": constant},
        recorded_lineage(rows.artifact, catalog, split_artifact(captions, captioned, "train")),
    )
    lineage = recorded_lineage(rows.artifact, read_statistics(statistics, of_captions=True)[1])
    embedding = EMBEDDINGS[section.kind](rows, fitted, section.choices())
    settings = section.model_dump(exclude={"source"})
    written = write_embeddings(embeddings, rows, embedding, settings, lineage, name="caption_embeddings")
    width = sum(layer.features for layer in embedding.layers)
    say(f"{len(rows.ids)} captions, {width} values each ({embedding.dtype})")
    for line in format_fractions(written):
        say(line)


if __name__ == "__main__":
    main()
