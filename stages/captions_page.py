"""Stage `captions_page`: a page about the captions that a model wrote."""

from pathlib import Path

import click

from fne.core.files import write_text
from fne.core.options import INPUT, OUTPUT, params_option
from fne.core.settings import load_key, load_section
from fne.core.stage import stage
from fne.describing.annotations import read_written
from fne.evaluation.score_captions import read_caption_scores
from fne.report.caption_page import MAIN, PAGE, choose_examples, render_captions
from fne.report.frame import PageSource
from fne.report.settings import Report
from fne.report.sources import read_history


@stage("captions_page", "catalog.root")
@click.argument("metrics", type=INPUT)
@click.argument("intervals", type=INPUT)
@click.argument("written", type=INPUT)
@click.argument("history", type=INPUT)
@click.argument("images", type=INPUT)
@click.argument("captions", type=INPUT)
@click.argument("page", type=OUTPUT)
@params_option
def main(
    metrics: Path,
    intervals: Path,
    written: Path,
    history: Path,
    images: Path,
    captions: Path,
    page: Path,
    params: Path,
) -> None:
    """Write a PAGE about WRITTEN captions, their METRICS and the HISTORY of the captioner."""
    settings = load_section(params, PAGE, Report)
    root = load_key(params, "catalog", "root")
    sentences, artifact = read_written(written)
    scores = read_caption_scores(metrics, intervals, artifact)
    source = PageSource.read(artifact, images, captions, root)
    examples = choose_examples(scores, sentences, source.captioned, settings.examples, settings.seed)
    curves = read_history(history, artifact, scores.validation, main=MAIN, item="caption")
    frame = source.frame(PAGE, settings.model_dump(), [each.id for each in examples], curves)
    write_text(page, render_captions(scores, examples, frame))


if __name__ == "__main__":
    main()
