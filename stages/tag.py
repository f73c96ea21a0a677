"""Stage `tag`: the tags of a split, how good they are, and a page about them."""

from pathlib import Path

import click

from fne.core import stat_cache
from fne.core.device import prepare_device
from fne.core.files import write_text
from fne.core.options import INPUT, OUTPUT, params_option
from fne.core.settings import load_key, load_runtime, load_section
from fne.core.stage import stage
from fne.core.terminal import say
from fne.describing.annotations import write_tagged
from fne.describing.concepts import recorded_source
from fne.describing.model_file import read_describing_model
from fne.describing.settings import TAGGER, Tag
from fne.describing.write import Writer, tagged_images
from fne.evaluation.protocols import FULL, metrics_name, read_scored_catalog
from fne.evaluation.score_tags import images_to_tag, score_tags, write_tag_scores
from fne.report.description_page import PageSource
from fne.report.tag_page import MAIN, PAGE, choose_tag_examples, render_tags
from fne.store.rows import Rows


@stage("tag", "catalog.root")
@click.argument("model", type=INPUT)
@click.argument("embeddings", type=INPUT)
@click.argument("images", type=INPUT)
@click.argument("captions", type=INPUT)
@click.argument("history", type=INPUT)
@click.argument("tags", type=OUTPUT)
@click.argument("metrics", type=OUTPUT)
@click.argument("intervals", type=OUTPUT)
@click.argument("page", type=OUTPUT)
@params_option
def main(
    model: Path,
    embeddings: Path,
    images: Path,
    captions: Path,
    history: Path,
    tags: Path,
    metrics: Path,
    intervals: Path,
    page: Path,
    params: Path,
) -> None:
    """Tag the images of a split with a MODEL; score the TAGS and show them on a PAGE."""
    settings, runtime = load_section(params, "tag", Tag), load_runtime(params)
    root = load_key(params, "catalog", "root")
    stat_cache.use(runtime.scratch_folder())
    device = prepare_device(runtime)
    tagger, file = read_describing_model(model, TAGGER)
    rows = Rows.open(embeddings, "embeddings")
    catalog, captioned, lineage = read_scored_catalog(images, captions, file.artifact, rows.artifact)
    source, concepts = recorded_source(file.artifact.settings), file.vocabulary.concepts
    records = images_to_tag(captioned, source, settings.split)
    writer = Writer(tagger.to(device), file.vocabulary, file.artifact.digest, runtime.scratch_folder())
    found = writer.tag_store(rows, records)
    name = metrics_name(settings.split, FULL)
    tagged = tagged_images([record.id for record in records], found, concepts.names, settings.top_k)
    write_tagged(tags, tagged, concepts.names, settings.model_dump() | {"name": name}, lineage)
    # The outputs of other losses are scores, not probabilities.
    threshold = settings.threshold if file.artifact.settings["concept_loss"] == "logistic" else None
    truth = [source.names(record) for record in records]
    scores = score_tags(name, concepts, truth, found, settings.top_k, threshold)
    say(write_tag_scores(scores, metrics, intervals))
    examples = choose_tag_examples(scores, tagged, settings.examples, settings.seed)
    shown = PageSource(
        "tag", file.artifact, history, catalog, captioned, lineage, settings.model_dump(), root
    )
    frame = shown.frame(PAGE, MAIN, "image", [each.id for each in examples])
    write_text(page, render_tags(scores, tagged, examples, frame))


if __name__ == "__main__":
    main()
