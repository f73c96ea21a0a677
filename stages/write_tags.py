"""Stage `write_tags`: tags of images, and the probabilities of all concepts, which are scored later."""

from pathlib import Path

import click

from fne.core import stat_cache
from fne.core.device import prepare_device
from fne.core.options import INPUT, OUTPUT, params_option
from fne.core.settings import load_runtime, load_section
from fne.core.stage import stage
from fne.core.terminal import say
from fne.describing.annotations import write_tagged
from fne.describing.model_file import read_describing_model
from fne.describing.settings import TAGGER, WriteTags
from fne.describing.write import Writer, images_to_describe, tagged_images
from fne.store.catalog import read_captions, split_artifact
from fne.store.lineage import recorded_lineage
from fne.store.rows import Rows
from fne.training.row_source import StoreRows


@stage("write_tags")
@click.argument("model", type=INPUT)
@click.argument("embeddings", type=INPUT)
@click.argument("captions", type=INPUT)
@click.argument("tags", type=OUTPUT)
@params_option
def main(model: Path, embeddings: Path, captions: Path, tags: Path, params: Path) -> None:
    """Write TAGS of images with a MODEL."""
    settings, runtime = load_section(params, "write_tags", WriteTags), load_runtime(params)
    stat_cache.use(runtime.scratch_folder())
    device = prepare_device(runtime)
    tagger, file = read_describing_model(model, TAGGER)
    rows = Rows.open(embeddings, "embeddings")
    captioned, artifact = read_captions(captions)
    train = split_artifact(captions, captioned, "train")
    lineage = recorded_lineage(file.artifact, rows.artifact, artifact, train)
    records = images_to_describe(captioned, rows.ids, embeddings, "write_tags", settings.images)
    writer = Writer(tagger.to(device), file.vocabulary, file.artifact.digest, runtime.scratch_folder())
    found, concepts = writer.tag_store(StoreRows(rows), records), file.vocabulary.concepts
    tagged = tagged_images([record.id for record in records], found, concepts.names, settings.top_k)
    write_tagged(tags, tagged, concepts, settings.model_dump(), lineage)
    say(f"tags of {len(tagged)} images")


if __name__ == "__main__":
    main()
