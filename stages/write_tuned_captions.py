"""Stage `write_tuned_captions`: sentences about images, with a tuned network."""

from pathlib import Path

import click

from fne.core import stat_cache
from fne.core.device import prepare_device
from fne.core.options import INPUT, OUTPUT, params_option
from fne.core.settings import load_key, load_runtime, load_section
from fne.core.stage import stage
from fne.core.terminal import say
from fne.describing.annotations import write_written
from fne.describing.model_file import read_describing_model
from fne.describing.settings import CAPTIONER, WriteCaptions
from fne.describing.write import Writer, caption_search, images_to_describe
from fne.finetuning.encode import TunedRows
from fne.store.catalog import image_root, read_captions, read_images, split_artifact
from fne.store.lineage import recorded_lineage


@stage("write_captions")
@click.argument("model", type=INPUT)
@click.argument("images", type=INPUT)
@click.argument("captions", type=INPUT)
@click.argument("written", type=OUTPUT)
@params_option
def main(model: Path, images: Path, captions: Path, written: Path, params: Path) -> None:
    """Write captions of images with a MODEL; IMAGES and CAPTIONS are those of the catalog."""
    settings, runtime = load_section(params, "write_captions", WriteCaptions), load_runtime(params)
    stat_cache.use(runtime.scratch_folder())
    device = prepare_device(runtime)
    captioner, file = read_describing_model(model, CAPTIONER)
    listed, files = read_images(images)
    captioned, artifact = read_captions(captions)
    train = split_artifact(captions, captioned, "train")
    lineage = recorded_lineage(file.artifact, files, artifact, train)
    known = {each.id: each for each in listed}
    records = images_to_describe(captioned, known, images, "write_captions", settings.images)
    # Only where the files are; what they are is checked by their digests.
    root = image_root(load_key(params, "catalog", "root"))
    rows = TunedRows(file.artifact, [known[record.id] for record in records], root, runtime)
    writer = Writer(captioner.to(device), file.vocabulary, file.artifact.digest, runtime.scratch_folder())
    how = caption_search(settings)
    ids = [record.id for record in records]
    sentences = writer.caption_store(rows, ids, how, settings.concepts)
    write_written(written, sentences, settings.model_dump(), lineage)
    say(f"captions of {len(sentences)} images")


if __name__ == "__main__":
    main()
