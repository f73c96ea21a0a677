"""Stage `check_captions`: the catalog has the captions that a captioner learns from, and those of its score.

It stands before the training in the pipeline, which asks for it before the extraction: hours of work do not
end at a split without captions.
"""

from pathlib import Path

import click

from fne.core.files import write_text
from fne.core.options import INPUT, TABLE, params_option
from fne.core.settings import load_section
from fne.core.stage import stage
from fne.core.terminal import say
from fne.describing.inputs import captions_to_learn
from fne.describing.settings import TrainCaptioner
from fne.evaluation.protocols import FULL, ScoreCaptions, choose_folds
from fne.store.catalog import read_captions


@stage("train_captioner", "score_captions")
@click.argument("captions", type=INPUT)
@click.argument("checked", type=TABLE)
@params_option
def main(captions: Path, checked: Path, params: Path) -> None:
    """Refuse CAPTIONS without sentences to learn or to score, and write the constant file CHECKED."""
    # Before anything is refused: DVC has removed the file, and nothing else must be missing afterwards.
    write_text(checked, "The splits had captions.\n")
    settings = load_section(params, "train_captioner", TrainCaptioner)
    split = load_section(params, "score_captions", ScoreCaptions).split
    captioned = read_captions(captions)[0]
    lesson = captions_to_learn(captions, captioned, settings)
    scored = choose_folds(FULL, captioned, split, "score_captions")[0]
    say(f"{captions}: {len(lesson.training)} images to learn from, {len(scored)} in the split '{split}'")


if __name__ == "__main__":
    main()
