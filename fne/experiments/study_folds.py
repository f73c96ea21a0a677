"""The images of a study, divided into folds: each is tested once, by a model that has not seen it.

The training and validation images of the catalog are divided again. The test images of the catalog belong
to no fold: they are withheld until a study is run with the splits of the catalog. The division depends on
the ids and the seed alone, whatever the versions of the libraries.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from fne.core.errors import InputError
from fne.store.catalog import Captioned

DIVIDED = ("train", "val")


def divide(
    captioned: Sequence[Captioned], folds: int, fold: int, validation: float, seed: int, images: int = 0
) -> list[Captioned]:
    """Return the images of a fold with their splits: train, val (the inner validation) and test.

    Args:
        captioned: the images of the catalog.
        folds: how many folds there are; 0 keeps the splits of the catalog.
        fold: which of them is tested.
        validation: the fraction of the other images that is the inner validation.
        seed: of the division.
        images: use only so many images, for a pilot; 0: all.

    Raises:
        InputError: if there are too few images.
    """
    if not folds:
        if not any(record.split == "test" for record in captioned):
            raise InputError("the catalog has no test images; leave out --official to use folds")
        return list(captioned)
    known = [record for record in captioned if record.split in DIVIDED and record.captions]
    order = sorted(known, key=lambda record: _draw(seed, "fold", record.id))
    if images:
        kept = {record.id for record in order[:images]}
        order, known = order[:images], [record for record in known if record.id in kept]
    if len(known) < 3 * folds:
        raise InputError(
            f"{len(known)} images of train and val cannot be divided: {folds} folds need {3 * folds}"
        )
    number = {record.id: place % folds for place, record in enumerate(order)}
    rest = sorted(
        (record.id for record in known if number[record.id] != fold),
        key=lambda each: _draw(seed, "validation", each),
    )
    held = set(rest[: max(1, round(validation * len(rest)))])
    return [
        replace(
            record, split="test" if number[record.id] == fold else "val" if record.id in held else "train"
        )
        for record in known
    ]


def _draw(seed: int, purpose: str, image: str) -> bytes:
    return hashlib.sha256(f"{seed} {purpose} {image}".encode()).digest()
