"""Stage `tag`: the tags of a split, how good they are, and a page about them."""

from pathlib import Path

import click

from fne.core import stat_cache
from fne.core.device import prepare_device
from fne.core.files import write_text
from fne.core.options import INPUT, OUTPUT, params_option
from fne.core.params import load_key, load_runtime, load_section
from fne.core.stage import input_digests, stage
from fne.core.terminal import say
from fne.describing.tagging.model import read_tagger, written_mask
from fne.describing.tagging.score import images_to_tag, recorded_source, tag_images, tagged_images
from fne.describing.tagging.settings import Tag
from fne.describing.written import write_tagged
from fne.evaluation.protocols import FULL, metrics_name, read_scored_catalog
from fne.evaluation.score_tags import evaluate_labels, write_label_results
from fne.report.page import make_thumbnails
from fne.report.record import page_record
from fne.report.sources import read_history
from fne.report.tag_page import MAIN, PAGE, Results, choose_tag_examples, render_tags
from fne.store.catalog import image_root
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
    tagger = read_tagger(model)
    tagger.describer.to(device)
    rows = Rows.open(embeddings, "embeddings")
    catalog, captioned, lineage = read_scored_catalog(images, captions, tagger.artifact, rows.artifact)
    source = recorded_source(tagger)
    records = images_to_tag(captioned, source, settings.split)
    concepts = tagger.concepts.names
    answers = tag_images(tagger, records, rows)
    written = None if answers.written is None else written_mask(answers.written, len(concepts))
    # The outputs of other losses are scores, not probabilities.
    is_logistic = tagger.artifact.settings["concept_loss"] == "logistic"
    evaluation = evaluate_labels(
        concepts,
        [source.names(record) for record in records],
        answers.probabilities,
        written,
        settings.top_k,
        settings.threshold if is_logistic else None,
    )
    name = metrics_name(settings.split, FULL)
    tagged = tagged_images([record.id for record in records], answers, concepts, settings.top_k)
    write_tagged(tags, tagged, concepts, settings.model_dump() | {"name": name}, lineage)
    found, bounds = write_label_results(evaluation, name, metrics, intervals, say)
    results = Results(
        name,
        evaluation.names,
        tagger.concepts.counts,
        evaluation.true,
        evaluation.answers,
        answers.probabilities,
        found,
        bounds,
    )
    examples = choose_tag_examples(results, tagged, concepts, settings.examples, settings.seed)
    thumbnails = make_thumbnails([each.id for each in examples], catalog, image_root(root))
    training = read_history(history, tagger.artifact, main=MAIN, item="image")
    record = page_record(settings.model_dump() | {"root": root}, lineage, input_digests(), PAGE, "tag")
    text = render_tags(results, tagged, examples, lineage, training, captioned, thumbnails, root, record)
    write_text(page, text)


if __name__ == "__main__":
    main()
