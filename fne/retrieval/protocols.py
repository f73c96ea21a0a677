"""Which images of a split are ranked against each other.

Published results on COCO use 1,000 or 5,000 images, and the fewer there are, the easier it
is; so a protocol's name stands in the names of its metrics. Its images are the first ones in
the data set's own order (Karpathy's file, or COCO's), which the catalog keeps as `position`,
and folds follow each other in that order.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fne.core.errors import InputError
from fne.store.catalog import Captioned, in_split

FULL = "full"
SCORED = ("test", "val")  # the splits that may be scored


@dataclass(frozen=True)
class Protocol:
    """How many folds of how many images; metrics are means over the folds."""

    folds: int
    images: int


def choose_folds(name: str, captioned: Sequence[Captioned], split: str) -> list[list[Captioned]]:
    """Return the images of each fold of a protocol, from those of a split.

    Raises:
        InputError: if the split is empty or too small, or the catalog does not know the data set's order.
    """
    chosen = in_split(captioned, split)
    if not chosen:
        raise InputError(_nothing_to_score(captioned, split))
    if name == FULL:
        return [chosen]
    protocol = PROTOCOLS[name]
    needed = protocol.folds * protocol.images
    if len(chosen) < needed:
        raise InputError(
            f"params.yaml: evaluate.protocol is '{name}', which needs {needed} images, but split '{split}' "
            f"has {len(chosen)}; use `full`"
        )
    positions = [record.position for record in chosen if record.position is not None]
    if len(positions) < len(chosen):
        raise InputError(
            f"params.yaml: evaluate.protocol is '{name}', but the catalog does not tell the data set's "
            "order; run `dvc repro --force catalog`"
        )
    ordered = [record for _, record in sorted(zip(positions, chosen, strict=True), key=lambda pair: pair[0])]
    return [ordered[start : start + protocol.images] for start in range(0, needed, protocol.images)]


def metrics_name(split: str, protocol: str) -> str:
    """Return the name under which a protocol's metrics stand.

    Example:
        >>> metrics_name("test", "full"), metrics_name("test", "coco_1k_mean5")
        ('test_full', 'test_coco_1k_mean5')
    """
    return f"{split}_{protocol}"


def _nothing_to_score(captioned: Sequence[Captioned], split: str) -> str:
    splits = sorted({record.split for record in captioned if record.captions})
    usable = next((each for each in SCORED if each in splits), None)
    remedy = f"use `dvc exp run -S evaluate.split={usable}`" if usable else "see `catalog` in params.yaml"
    return (
        f"params.yaml: evaluate.split is '{split}', but the catalog has captions only in "
        f"{', '.join(splits) or 'no split'}; {remedy}"
    )


PROTOCOLS = {
    FULL: Protocol(folds=1, images=0),  # 0: all there are
    "coco_1k_first": Protocol(folds=1, images=1000),
    "coco_1k_mean5": Protocol(folds=5, images=1000),
    "coco_5k": Protocol(folds=1, images=5000),
}
