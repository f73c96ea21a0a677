"""Stage `score_tags`: how good the tags of a split are."""

from pathlib import Path

import click

from fne.core.options import INPUT, OUTPUT, params_option
from fne.core.settings import load_section
from fne.core.stage import stage
from fne.core.terminal import say
from fne.describing.annotations import read_tagged
from fne.evaluation.protocols import ScoreTags, read_scored_catalog
from fne.evaluation.score_tags import score_tagged, write_tag_results


@stage("score_tags")
@click.argument("tags", type=INPUT)
@click.argument("captions", type=INPUT)
@click.argument("metrics", type=OUTPUT)
@click.argument("intervals", type=OUTPUT)
@params_option
def main(tags: Path, captions: Path, metrics: Path, intervals: Path, params: Path) -> None:
    """Score the TAGS of a split against those of the catalog."""
    settings = load_section(params, "score_tags", ScoreTags)
    file = read_tagged(tags)
    results = score_tagged(file, read_scored_catalog(captions, file.artifact), settings)
    say(write_tag_results(results, metrics, intervals, settings.model_dump(), file.artifact))


if __name__ == "__main__":
    main()
