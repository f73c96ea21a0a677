"""Stage `caption`: a sentence for every image, its scores beside baselines, and a page about them."""

from pathlib import Path

import click

from fne.core import stat_cache
from fne.core.device import prepare_device
from fne.core.files import write_text
from fne.core.options import INPUT, OUTPUT, params_option
from fne.core.settings import load_key, load_runtime, load_section
from fne.core.stage import stage
from fne.core.terminal import say
from fne.describing.annotations import write_written
from fne.describing.model_file import read_describing_model
from fne.describing.settings import CAPTIONER, Caption
from fne.describing.write import Writer, caption_search
from fne.evaluation.protocols import read_scored_catalog
from fne.evaluation.score_captions import evaluate_captions, images_to_caption, meteor_scores, write_scores
from fne.report.caption_page import MAIN, PAGE, choose_examples, render_captions
from fne.report.description_page import PageSource
from fne.store.rows import Rows


@stage("caption", "catalog.root")
@click.argument("model", type=INPUT)
@click.argument("embeddings", type=INPUT)
@click.argument("images", type=INPUT)
@click.argument("captions", type=INPUT)
@click.argument("history", type=INPUT)
@click.argument("written", type=OUTPUT)
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
    written: Path,
    metrics: Path,
    intervals: Path,
    page: Path,
    params: Path,
) -> None:
    """Write captions with a MODEL; score those of a split and show them on a PAGE."""
    settings, runtime = load_section(params, "caption", Caption), load_runtime(params)
    stat_cache.use(runtime.scratch_folder())
    device = prepare_device(runtime)
    root = load_key(params, "catalog", "root")
    captioner, file = read_describing_model(model, CAPTIONER)
    rows = Rows.open(embeddings, "embeddings")
    catalog, captioned, lineage = read_scored_catalog(images, captions, file.artifact, rows.artifact)
    writer = Writer(captioner.to(device), file.vocabulary, file.artifact.digest, runtime.scratch_folder())
    sentences = writer.caption_store(
        rows,
        images_to_caption(captioned, rows, settings.split, settings.images),
        caption_search(settings.beam, settings.max_length, settings.length_power),
        settings.concepts,
    )
    by_image = {each.id: each for each in sentences}
    write_written(written, by_image.values(), settings.model_dump(), lineage)
    scores = evaluate_captions(by_image, captioned, rows, settings.split, settings.neighbors)
    meteor = meteor_scores(settings.meteor, scores)
    say(write_scores(scores, metrics, intervals, settings.model_dump(), lineage, meteor))
    examples = choose_examples(
        scores, by_image, {each.id: each for each in captioned}, settings.examples, settings.seed
    )
    shown = PageSource(
        "caption", file.artifact, history, catalog, captioned, lineage, settings.model_dump(), root
    )
    frame = shown.frame(PAGE, MAIN, "caption", [each.id for each in examples])
    write_text(page, render_captions(scores, meteor, examples, frame))


if __name__ == "__main__":
    main()
