"""Stage `write_captions`: sentences about images."""

from pathlib import Path

import click

from fne.core import stat_cache
from fne.core.device import prepare_device
from fne.core.options import INPUT, OUTPUT, params_option
from fne.core.settings import load_runtime, load_section
from fne.core.stage import stage
from fne.core.terminal import say
from fne.describing.annotations import write_written
from fne.describing.model_file import read_describing_model
from fne.describing.settings import CAPTIONER, WriteCaptions
from fne.describing.write import Writer, caption_search, images_to_describe
from fne.store.catalog import read_captions, split_artifact
from fne.store.lineage import recorded_lineage
from fne.store.rows import Rows
from fne.training.row_source import StoreRows


@stage("write_captions")
@click.argument("model", type=INPUT)
@click.argument("embeddings", type=INPUT)
@click.argument("captions", type=INPUT)
@click.argument("written", type=OUTPUT)
@params_option
def main(model: Path, embeddings: Path, captions: Path, written: Path, params: Path) -> None:
    """Write captions of images with a MODEL; CAPTIONS of the catalog say which images there are."""
    settings, runtime = load_section(params, "write_captions", WriteCaptions), load_runtime(params)
    stat_cache.use(runtime.scratch_folder())
    device = prepare_device(runtime)
    captioner, file = read_describing_model(model, CAPTIONER)
    rows = Rows.open(embeddings, "embeddings")
    captioned, artifact = read_captions(captions)
    train = split_artifact(captions, captioned, "train")
    lineage = recorded_lineage(file.artifact, rows.artifact, artifact, train)
    records = images_to_describe(captioned, rows.ids, embeddings, "write_captions", settings.images)
    writer = Writer(captioner.to(device), file.vocabulary, file.artifact.digest, runtime.scratch_folder())
    how = caption_search(settings)
    ids = [record.id for record in records]
    sentences = writer.caption_store(StoreRows(rows), ids, how, settings.concepts)
    write_written(written, sentences, settings.model_dump(), lineage)
    say(f"captions of {len(sentences)} images")


if __name__ == "__main__":
    main()
