"""Which split an image belongs to, where the data set leaves that to us."""

import hashlib
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from fne.core.errors import InputError
from fne.datasets.records import Record
from fne.store.catalog import SPLITS

RESTVAL = ("drop", "train")
KNOWN = (*SPLITS, "restval")
DROPPED = "images of the split 'restval', left out (catalog.restval)"


@dataclass(frozen=True)
class Splitting:
    """What becomes of `restval`, and the shares of data sets without splits."""

    restval: str
    val_share: float
    test_share: float
    seed: int


def resolve_splits(
    records: Sequence[Record], captioned: Collection[str], splitting: Splitting
) -> tuple[dict[str, str], Counter[str]]:
    """Return the split of every image that stays in the data set, and a count of those that do not.

    Images whose id is not in `captioned` have no usable caption and go to the gallery.
    """
    without = [record for record in records if record.split is None]
    if without and len(without) < len(records):
        raise InputError(
            f"{without[0].source}: {len(without)} of {len(records)} images have no split "
            f"(first {without[0].id!r}, {without[0].place}); give all of them a split, or none"
        )
    drawn = draw_splits([record.id for record in without if record.id in captioned], splitting)
    splits: dict[str, str] = {}
    for record in records:
        split = drawn.get(record.id, record.split)
        if split == "restval" and splitting.restval == "drop":
            continue
        if split == "restval":
            split = splitting.restval
        splits[record.id] = split if split and record.id in captioned else "gallery"
    return splits, Counter({DROPPED: len(records) - len(splits)})


def draw_splits(ids: Sequence[str], splitting: Splitting) -> dict[str, str]:
    """Give each id a split: exact shares, in an order that depends on nothing but seed and id."""
    val = round(len(ids) * splitting.val_share)
    test = round(len(ids) * splitting.test_share)
    ordered = sorted(ids, key=lambda each: hashlib.sha256(f"{splitting.seed}:{each}".encode()).digest())
    names = ["val"] * val + ["test"] * test
    names += ["train"] * (len(ids) - len(names))
    return dict(zip(ordered, names, strict=True))
