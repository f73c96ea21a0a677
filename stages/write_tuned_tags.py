"""Stage `write_tuned_tags`: tags and probabilities of concepts, with a tuned network."""

from pathlib import Path

import click

from fne.core import stat_cache
from fne.core.device import prepare_device
from fne.core.options import INPUT, OUTPUT, params_option
from fne.core.settings import load_key, load_runtime, load_section
from fne.core.stage import stage
from fne.core.terminal import say
from fne.describing.annotations import write_tagged
from fne.describing.model_file import read_describing_model
from fne.describing.settings import TAGGER, WriteTags
from fne.describing.write import Writer, images_to_describe, tagged_images
from fne.finetuning.encode import TunedRows
from fne.store.catalog import image_root, read_captions, read_images, split_artifact
from fne.store.lineage import recorded_lineage


@stage("write_tags")
@click.argument("model", type=INPUT)
@click.argument("images", type=INPUT)
@click.argument("captions", type=INPUT)
@click.argument("tags", type=OUTPUT)
@params_option
def main(model: Path, images: Path, captions: Path, tags: Path, params: Path) -> None:
    """Write TAGS of images with a MODEL and the network that was tuned with it."""
    settings, runtime = load_section(params, "write_tags", WriteTags), load_runtime(params)
    stat_cache.use(runtime.scratch_folder())
    device = prepare_device(runtime)
    tagger, file = read_describing_model(model, TAGGER)
    listed, files = read_images(images)
    captioned, artifact = read_captions(captions)
    train = split_artifact(captions, captioned, "train")
    lineage = recorded_lineage(file.artifact, files, artifact, train)
    known = {each.id: each for each in listed}
    records = images_to_describe(captioned, known, images, "write_tags", settings.images)
    # Only where the files are; what they are is checked by their digests.
    root = image_root(load_key(params, "catalog", "root"))
    rows = TunedRows(file.artifact, [known[record.id] for record in records], root, runtime)
    writer = Writer(tagger.to(device), file.vocabulary, file.artifact.digest, runtime.scratch_folder())
    found, concepts = writer.tag_store(rows, records), file.vocabulary.concepts
    tagged = tagged_images([record.id for record in records], found, concepts.names, settings.top_k)
    write_tagged(tags, tagged, concepts, settings.model_dump(), lineage)
    say(f"tags of {len(tagged)} images")


if __name__ == "__main__":
    main()
