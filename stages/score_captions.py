"""Stage `score_captions`: how good the captions of a split are, beside baselines that need no captioner."""

from pathlib import Path

import click

from fne.core import stat_cache
from fne.core.options import INPUT, OUTPUT, params_option
from fne.core.settings import load_runtime, load_section
from fne.core.stage import stage
from fne.core.terminal import say
from fne.describing.annotations import read_written
from fne.evaluation.protocols import ScoreCaptions, read_scored_catalog
from fne.evaluation.score_captions import score_written, write_caption_scores
from fne.store.rows import Rows


@stage("score_captions")
@click.argument("written", type=INPUT)
@click.argument("embeddings", type=INPUT)
@click.argument("captions", type=INPUT)
@click.argument("metrics", type=OUTPUT)
@click.argument("intervals", type=OUTPUT)
@params_option
def main(
    written: Path, embeddings: Path, captions: Path, metrics: Path, intervals: Path, params: Path
) -> None:
    """Score the WRITTEN captions of a split; EMBEDDINGS name the nearest images for the baselines."""
    settings = load_section(params, "score_captions", ScoreCaptions)
    stat_cache.use(load_runtime(params).scratch_folder())
    sentences, artifact = read_written(written)
    rows = Rows.open(embeddings, "embeddings")
    captioned = read_scored_catalog(captions, artifact, rows.artifact)
    scores = score_written(sentences, artifact, captioned, rows, settings)
    say(write_caption_scores(scores, metrics, intervals, settings.model_dump(), artifact))


if __name__ == "__main__":
    main()
