"""What an evaluation must not rest on: anything learned from the images and captions it scores.

Every artifact carries the settings and digests of what it was made from, so that this can
be checked at the end, whatever was run in between.
"""

from collections.abc import Sequence
from pathlib import Path

from fne.core.errors import InputError
from fne.store.catalog import Captioned
from fne.store.lineage import Lineage
from fne.store.photos import refuse_shared_photos

# Words of the validation captions are known in the field's published codes as well.
KNOWN_WORDS = ("train", "val")


def refuse_leaks(lineage: Lineage, captioned: Sequence[Captioned], captions: Path) -> None:
    """Refuse vectors that know more of what is scored than they may.

    Args:
        lineage: what the vectors were made from, merged with the training images of the catalog: so it
            is certain already that model and statistics were fitted on just these.
        captioned: the catalog.
        captions: its path, for messages.

    Raises:
        InputError: if the vocabulary knows other captions than those of train and val, if the statistics
            are not those of the training images, or if one photograph stands in two splits.
    """
    vocabulary = lineage.get("vocabulary", {}).get("settings", {}).get("vocabulary")
    if not vocabulary:
        raise InputError(
            "the vectors do not say which captions their vocabulary knows; run `dvc repro tokenize`"
        )
    foreign = sorted(set(vocabulary) - set(KNOWN_WORDS))
    if foreign:
        raise InputError(
            f"the vocabulary was made from captions of {', '.join(foreign)}, which leaks what is scored; "
            f"set tokenize.vocabulary to {' and '.join(KNOWN_WORDS)}, and run `dvc repro`"
        )
    statistics = lineage.get("statistics")
    if statistics and statistics["settings"].get("split") != "train":
        raise InputError(
            f"the statistics were made from images of {statistics['settings'].get('split')}, not of train, "
            "which leaks what is scored; run `dvc repro --force standardize`"
        )
    splits = {record.id: record.split for record in captioned}
    refuse_shared_photos(captions, splits)
