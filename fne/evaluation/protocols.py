"""Which images of a split are ranked against each other, and the check that nothing was learned from them.

Published results on COCO use 1,000 or 5,000 images. Fewer images are easier, so the name of the protocol is
part of the names of its metrics. The images of a protocol are the first ones in the data set's own order
(Karpathy's file, or COCO's), which the catalog records as `position`. Folds are consecutive in that order.

Every artifact carries the settings and digests of what it was made from. So leaks can be detected at the end,
whatever was run in between.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from fne.core.errors import InputError, LinesError
from fne.core.settings import Section, one_of
from fne.store.artifact import Artifact, Lineage
from fne.store.catalog import (
    Captioned,
    captioned_in,
    read_captions,
    refuse_duplicate_photos,
    split_artifact,
)
from fne.store.lineage import recorded_lineage

FULL = "full"
# What helps if no image is in test, and what scoring val instead means.
NO_TEST = "hold out some training images with `-S ++catalog.test_from_train=0.1`"
TOO_HIGH = "whose images choose the epoch, so that the figures are too high"
# How photographs without captions get embeddings.
WITHOUT_MODEL = "dvc exp run -S ++catalog.captions=optional"
SCORED = ("test", "val")  # the splits that may be scored
# The captioned images that training needs of a split, and what for.
NEEDED = {"train": (2, "training"), "val": (1, "choosing the best epoch")}
# Published code of the field also puts the words of the validation captions into the vocabulary.
KNOWN_WORDS = ("train", "val")


@dataclass(frozen=True)
class Protocol:
    """The number of folds and of images per fold; metrics are means over the folds."""

    folds: int
    images: int


def require_splits(captioned: Sequence[Captioned], captions: Path, split: str) -> None:
    """Refuse a catalog that has too few captions for training, or none in the split to score."""
    counts = Counter(record.split for record in captioned if record.captions)
    if not counts:
        tagged = any(record.tags for record in captioned)
        tagger = ", or with `pipelines/tagging/dvc.yaml` for a tagger" * tagged
        raise InputError(
            f"{captions}: no image has captions, which training and evaluation need; add some to the data "
            f"set, or run `{WITHOUT_MODEL} embed` for embeddings without a model{tagger}"
        )
    faults = [
        f"{captions}: {counts[name]} captioned images in split '{name}', {purpose} needs at least {least}; "
        "give more images that split in the data set; without splits there, see catalog.val_share"
        for name, (least, purpose) in NEEDED.items()
        if counts[name] < least
    ]
    if not counts[split] and split not in NEEDED:
        faults.append(_nothing_to_score(captioned, split, "evaluate"))
    if faults:
        faults[-1] += f"; for embeddings or tags alone, use `{WITHOUT_MODEL}`"
        raise LinesError("\n".join(faults))


def choose_folds(
    name: str, captioned: Sequence[Captioned], split: str, section: str = "evaluate"
) -> list[list[Captioned]]:
    """Return the images of each fold of a protocol, from those of a split, which a section names."""
    chosen = captioned_in(captioned, split)
    if not chosen:
        raise InputError(_nothing_to_score(captioned, split, section))
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
            f"params.yaml: evaluate.protocol is '{name}', but the catalog does not record the data "
            "set's order; run `dvc repro --force catalog`"
        )
    ordered = [record for _, record in sorted(zip(positions, chosen, strict=True), key=lambda pair: pair[0])]
    return [ordered[start : start + protocol.images] for start in range(0, needed, protocol.images)]


def metrics_name(split: str, protocol: str) -> str:
    """Return the name of a protocol's metrics in the metrics file.

    Example:
        >>> metrics_name("test", "full"), metrics_name("test", "coco_1k_mean5")
        ('test_full', 'test_coco_1k_mean5')
    """
    return f"{split}_{protocol}"


def refuse_leaks(lineage: Lineage, captioned: Sequence[Captioned], captions: Path) -> None:
    """Refuse vectors that were made from what is scored: by vocabulary, statistics, or images in two splits.

    The lineage is that of the vectors, merged with the training images of the catalog. So model and
    statistics are known to be fitted on exactly these.
    """
    vocabulary = lineage.get("vocabulary", {}).get("settings", {}).get("vocabulary")
    if not vocabulary:
        raise InputError(
            "the vectors do not record the captions of their vocabulary; run `dvc repro tokenize`"
        )
    foreign = sorted(set(vocabulary) - set(KNOWN_WORDS))
    if foreign:
        raise InputError(
            f"the vocabulary was made from captions of {', '.join(foreign)}, which leaks the scored "
            f"captions; set tokenize.vocabulary to {' and '.join(KNOWN_WORDS)}, and run `dvc repro`"
        )
    refuse_image_leaks(lineage, captioned, captions)


def refuse_image_leaks(lineage: Lineage, captioned: Sequence[Captioned], captions: Path) -> None:
    """Refuse results of images that statistics were fitted on, or that are in two splits.

    The lineage is that of the results, merged with the training images of the catalog.
    """
    statistics = lineage.get("statistics")
    if statistics and statistics["settings"].get("split") != "train":
        raise InputError(
            f"the statistics were made from images of {statistics['settings'].get('split')}, not of train, "
            "which leaks the scored images; run `dvc repro --force standardize`"
        )
    splits = {record.id: record.split for record in captioned}
    refuse_duplicate_photos(captions, splits)


def read_scored_catalog(captions: Path, *artifacts: Artifact) -> list[Captioned]:
    """Read the catalog whose images are scored, which must be that of the `artifacts`, without leaks."""
    captioned, captions_artifact = read_captions(captions)
    train = split_artifact(captions, captioned, "train")
    refuse_image_leaks(recorded_lineage(*artifacts, captions_artifact, train), captioned, captions)
    return captioned


def refuse_unwritten(
    written: Artifact, known: Collection[str], scored: Sequence[str], section: str, split: str
) -> None:
    """Refuse to score images about which nothing was written; `section` is that of the scores."""
    missing = [image for image in scored if image not in known]
    if not missing:
        return
    writing, images = section.replace("score", "write"), written.settings.get("images")
    lacks = f"{written.path} lacks {len(missing)} of {len(scored)} images, the first is {missing[0]!r}"
    if images not in (split, "all"):
        raise InputError(
            f"params.yaml: {section}.split is '{split}', but {writing}.images is '{images}' ({lacks}); "
            f"set {writing}.images to {split} or all"
        )
    raise InputError(f"{lacks}: the embeddings have no rows of them; run `dvc repro`")


def _nothing_to_score(captioned: Sequence[Captioned], split: str, section: str) -> str:
    splits = sorted({record.split for record in captioned if record.captions})
    usable = next((each for each in SCORED if each in splits), None)
    remedy = f"use `dvc exp run -S {section}.split={usable}`" if usable else "see `catalog` in params.yaml"
    if usable == "val":
        remedy = f"{NO_TEST}, or {remedy}, {TOO_HIGH}"
    return (
        f"params.yaml: {section}.split is '{split}', but the catalog has captions only in "
        f"{', '.join(splits) or 'no split'}; {remedy}"
    )


def _increasing(recalls: list[int]) -> list[int]:
    if recalls != sorted(set(recalls)):
        raise ValueError(f"must be increasing, got {recalls}")
    return recalls


PROTOCOLS = {
    FULL: Protocol(folds=1, images=0),  # 0: all of the split
    "coco_1k_first": Protocol(folds=1, images=1000),
    "coco_1k_mean5": Protocol(folds=5, images=1000),
    "coco_5k": Protocol(folds=1, images=5000),
}


class Evaluate(Section):
    """Which images are scored and how, and how many of the best matches are kept per query."""

    split: Annotated[str, one_of(SCORED)] = Field("test", description="the split that is scored")
    protocol: Annotated[str, one_of(PROTOCOLS)] = Field(
        FULL, description="which images of the split are ranked against each other"
    )
    recalls: Annotated[
        list[Annotated[int, Field(ge=1)]], Field(min_length=1), AfterValidator(_increasing)
    ] = Field([1, 5, 10], description="R@K for these K")
    # The folds of all protocols have at least a thousand captions, so all keep the same number.
    top: int = Field(10, ge=1, le=1000, description="how many of the best are kept for each query")


class ScoreTags(Section):
    """Which images are scored, and the probability above which concepts are a third answer."""

    split: Annotated[str, one_of(SCORED)] = Field(
        "test", description="the split that is scored; `write_tags.images` must include it"
    )
    threshold: float = Field(
        0.5, gt=0, lt=1, description="the probability above which concepts are a third answer"
    )


class ScoreCaptions(Section):
    """Which images are scored, when METEOR is computed, and the neighbors of the consensus baseline."""

    split: Annotated[str, one_of(SCORED)] = Field(
        "test", description="the split that is scored; `write_captions.images` must include it"
    )
    meteor: Annotated[str, one_of(("always", "auto", "never"))] = Field(
        "auto", description="whether METEOR is computed; auto: if Java and the extra `meteor` are installed"
    )
    neighbors: int = Field(30, ge=1, description="neighbors of the consensus baseline")
