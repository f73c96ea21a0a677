"""Stage `check_tags`: the catalog has the tags that a tagger learns from, and those of its score.

It stands before the training in the pipeline, which asks for it before the extraction: hours of work do not
end at a split without tags.
"""

from pathlib import Path

import click

from fne.core.files import write_text
from fne.core.options import INPUT, TABLE, params_option
from fne.core.settings import load_section
from fne.core.stage import stage
from fne.core.terminal import say
from fne.describing.concepts import concept_source
from fne.describing.inputs import tags_to_learn
from fne.describing.settings import TrainTagger
from fne.evaluation.protocols import ScoreTags
from fne.evaluation.score_tags import images_to_tag
from fne.store.catalog import read_captions


@stage("train_tagger", "score_tags")
@click.argument("captions", type=INPUT)
@click.argument("checked", type=TABLE)
@params_option
def main(captions: Path, checked: Path, params: Path) -> None:
    """Refuse CAPTIONS without tags to learn or to score, and write the constant file CHECKED."""
    # Before anything is refused: DVC has removed the file, and nothing else must be missing afterwards.
    write_text(checked, "The splits had tags.\n")
    settings = load_section(params, "train_tagger", TrainTagger)
    split = load_section(params, "score_tags", ScoreTags).split
    captioned = read_captions(captions)[0]
    lesson = tags_to_learn(captions, captioned, settings)
    source = concept_source(settings.concepts, getattr(settings, settings.concepts))
    scored = images_to_tag(captioned, source, split)
    say(f"{captions}: {len(lesson.training)} images to learn from, {len(scored)} in the split '{split}'")


if __name__ == "__main__":
    main()
