"""What training learns from, checked before the first step."""

from dataclasses import dataclass
from pathlib import Path

from fne.matching.pairs import Pairs, require_images
from fne.store.catalog import in_split, read_captions, split_artifact
from fne.store.lineage import Lineage, merge
from fne.store.rows import Rows
from fne.store.tokens import read_tokens


@dataclass(frozen=True)
class Inputs:
    """The pairs to learn from and to judge by, the sizes they ask of a model, and where they are from."""

    training: Pairs
    validation: Pairs
    features: int
    words: int
    lineage: Lineage


def read_inputs(embeddings: Path, captions: Path, tokens: Path) -> Inputs:
    """Open the stores of training.

    Raises:
        InputError: if they do not belong together, or if a split has too few images.
    """
    rows, words = Rows.open(embeddings, "embeddings"), read_tokens(tokens)
    captioned, catalog = read_captions(captions)
    lineage = merge(rows.artifact, split_artifact(captions, captioned, "train"), catalog, words.artifact)
    training, validation = (Pairs(in_split(captioned, split), rows, words) for split in ("train", "val"))
    require_images(training, "train", least=2, purpose="training")
    require_images(validation, "val", least=1, purpose="choosing the best epoch")
    return Inputs(training, validation, rows.features, words.artifact.settings["words"], lineage)
