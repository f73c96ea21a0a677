"""Stage `tags_page`: a page about the tags that a model wrote."""

from pathlib import Path

import click

from fne.core.files import write_text
from fne.core.options import INPUT, OUTPUT, params_option
from fne.core.settings import load_key, load_section
from fne.core.stage import stage
from fne.describing.annotations import read_tagged
from fne.describing.concepts import recorded_source
from fne.describing.settings import TAGGER
from fne.evaluation.score_tags import read_tag_results
from fne.report.frame import PageSource
from fne.report.settings import Report
from fne.report.sources import read_history
from fne.report.tag_page import MAIN, PAGE, choose_tag_examples, render_tags


@stage("tags_page", "catalog.root")
@click.argument("metrics", type=INPUT)
@click.argument("intervals", type=INPUT)
@click.argument("tags", type=INPUT)
@click.argument("history", type=INPUT)
@click.argument("images", type=INPUT)
@click.argument("captions", type=INPUT)
@click.argument("page", type=OUTPUT)
@params_option
def main(
    metrics: Path,
    intervals: Path,
    tags: Path,
    history: Path,
    images: Path,
    captions: Path,
    page: Path,
    params: Path,
) -> None:
    """Write a PAGE about TAGS, their METRICS and the HISTORY of the tagger."""
    settings = load_section(params, PAGE, Report)
    root = load_key(params, "catalog", "root")
    file = read_tagged(tags)
    results = read_tag_results(metrics, intervals, file.artifact)
    source = PageSource.read(file.artifact, images, captions, root)
    tagged = {each.id: each for each in file.images}
    names = recorded_source(file.artifact.lineage[TAGGER]["settings"]).names
    true = {record.id: names(record) for record in source.captioned}
    examples = choose_tag_examples(results, tagged, true, settings.examples, settings.seed)
    curves = read_history(history, file.artifact, results.validation, main=MAIN, item="image")
    frame = source.frame(PAGE, settings.model_dump(), [each.id for each in examples], curves)
    write_text(page, render_tags(results, tagged, examples, frame))


if __name__ == "__main__":
    main()
