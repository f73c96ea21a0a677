"""Stage `check_splits`: the catalog has the captions that training and evaluation need.

It stands before `extract` in `dvc.yaml`, so that `dvc repro` refuses a data set without validation images
before hours of extraction. Embeddings and tags need no captions: for them, `catalog.captions` is `optional`.
"""

from pathlib import Path

import click

from fne.core.files import write_text
from fne.core.options import INPUT, TABLE, params_option
from fne.core.settings import load_section
from fne.core.stage import stage
from fne.core.terminal import say
from fne.datasets.read import OPTIONAL, Catalog
from fne.evaluation.protocols import Evaluate, require_splits
from fne.store.catalog import read_captions


@stage("catalog", "evaluate.split")
@click.argument("captions", type=INPUT)
@click.argument("checked", type=TABLE)
@params_option
def main(captions: Path, checked: Path, params: Path) -> None:
    """Refuse CAPTIONS without the splits that later stages need, and write the constant file CHECKED."""
    # Before anything is refused: DVC has removed the file, and nothing else must be missing afterwards.
    write_text(checked, "The splits had captions.\n")
    if load_section(params, "catalog", Catalog).captions == OPTIONAL:
        say(f"{captions}: catalog.captions is '{OPTIONAL}'; training and evaluation may lack what they need")
        return
    split = load_section(params, "evaluate", Evaluate).split
    require_splits(read_captions(captions)[0], captions, split)
    say(f"{captions}: captions for training, for choosing the epoch and for the split '{split}'")


if __name__ == "__main__":
    main()
