"""The catalog of a data set: its usable images and captions, each image with a split.

Faults of the data set as a whole stop the work before the first image is opened. Single images and captions
that cannot be used are rejected and listed. Captions are normalized: NFC, no control characters, single
spaces. The summary counts everything that was left out, changed or unusual.
"""

import hashlib
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar, Self

from pydantic import AfterValidator, Field, model_validator

from fne.core.errors import InputError
from fne.core.settings import Section, not_one_of, one_of
from fne.datasets.examine_images import Finding, examine_all, findings_file
from fne.datasets.location import NONE, image_folder
from fne.datasets.readers import AUTO, READERS, read_dataset
from fne.datasets.readers.base import Record, path_fault, refuse
from fne.datasets.readers.table import AUTOMATIC, Columns
from fne.datasets.rejects import Reject
from fne.store.catalog import SPLITS, Captioned, Image, refuse_duplicate_photos

RESTVAL = ("drop", "train")
KNOWN_SPLITS = (*SPLITS, "restval")
REQUIRED, OPTIONAL = "required", "optional"
LONG = 1000
# A longer caption is a mistake in the data, and each step would need many times its memory.
MAX_CAPTION = 100_000

# What is counted for the summary.
VAL_DROPPED = "images of the split 'val' after the first ones, left out (catalog.val_images)"
CAPTIONS_DROPPED = "captions after the first ones of an image, left out (catalog.captions_per_image)"
ELSEWHERE = "captions that another image has too, kept"
RESTVAL_DROPPED = "images of the split 'restval', left out (catalog.restval)"
WITHOUT_CAPTIONS = "images without captions and tags, in the split 'gallery'"
TAGS_ONLY = "images with tags and without captions, kept in their split"
DUPLICATES = "images with the same content as another one, kept"
GALLERY_CAPTIONS = "captions of images in the split 'gallery', left out"
RESPACED = "captions with control characters, line breaks or repeated spaces, replaced by single spaces"
COMPOSED = "captions normalized to Unicode NFC"
LONG_CAPTIONS = f"captions longer than {LONG} characters, kept"
EMOJI = "captions with emoji or other symbols, kept"
REPEATED = "captions that repeat another one of the same image, kept"
# The consequences if no image with captions is in a split.
NEEDED = {
    "val": "'val', which training needs to choose its best epoch; give it some training images",
    "test": (
        "'test', which results are reported on; hold out training images with catalog.test_from_train=0.1, "
        "or set evaluate.split to val, whose images choose the epoch"
    ),
}

_SURROGATE = re.compile("[\ud800-\udfff]")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")

Fraction = Annotated[float, Field(ge=0, lt=1)]
Name = Annotated[str, Field(min_length=1)]
Folder = Annotated[Name, AfterValidator(lambda name: str(Path(name)))]  # `./data/demo/` is `data/demo`


class Catalog(Section):
    """The section `catalog` of `params.yaml`."""

    common: ClassVar[tuple[str, ...]] = ("columns",)

    root: Folder = Field(
        "data/demo",
        description="the folder of the data set, or its annotation file; an absolute path works everywhere",
    )
    format: Annotated[str, one_of([AUTO, *READERS])] = Field(AUTO, description="the format of the data set")
    annotations: Name = Field(AUTO, description="a file below root, if auto finds more than one")
    images: Name = Field(
        AUTO, description="auto, a folder below root, or none (captions only; features are imported)"
    )
    captions: Annotated[str, one_of((REQUIRED, OPTIONAL))] = Field(
        REQUIRED, description="optional: without those that training needs, for embeddings and tags alone"
    )
    restval: Annotated[str, one_of(RESTVAL)] = Field(
        "drop", description="what becomes of Karpathy's additional COCO training images"
    )
    val_images: int = Field(0, ge=0, description="keep only this many images of val, the first ones; 0: all")
    captions_per_image: int = Field(
        0, ge=0, description="keep only this many captions per image, the first ones; 0: all"
    )
    val_share: Fraction = Field(
        0.1, description="the fraction of the images in val, for tables without a split column"
    )
    test_share: Fraction = Field(
        0.1, description="the fraction of the images in test, for tables without a split column"
    )
    test_from_train: Fraction = Field(
        0.0, description="the fraction of train that becomes test, for splits without test images"
    )
    seed: int = Field(0, ge=0, description="random seed of the drawing of these splits")
    max_rejects: int = Field(
        0, ge=0, description="how many unusable images and captions are skipped before the stage stops"
    )
    columns: Columns = AUTOMATIC

    @model_validator(mode="after")
    def _something_is_left_for_train(self) -> Self:
        if self.val_share + self.test_share >= 1:
            raise ValueError(
                f"val_share {self.val_share} and test_share {self.test_share} leave nothing for train; "
                "their sum must be below 1"
            )
        return self


class UnusableCaptionError(ValueError):
    """A caption that is refused; the message is the reason."""


@dataclass(frozen=True)
class CatalogResult:
    """The catalog of a data set."""

    images: list[Image]  # the usable images
    captioned: list[Captioned]  # the split, captions and tags of every image that stays in the data set
    rejects: list[Reject]  # the images and captions that cannot be used
    counts: Counter[str]  # what was left out, changed or unusual, by description
    # The digest of the decoded pixels of each image, by image id.
    pixels: dict[str, str] = field(default_factory=dict)


def read_catalog(
    root: Path, annotations: str, settings: Catalog, workers: int, cache: Path | None
) -> CatalogResult:
    """Read, check and normalize a data set at the place that `dataset_root` found.

    `cache` is a folder that keeps the findings about image files for the next run, or None.
    """
    reading = read_dataset(root, settings.format, annotations, settings.columns)
    _check_records(reading.records)
    captions = {record.id: _clean(record, settings.captions_per_image) for record in reading.records}
    described = {record.id for record in reading.records if captions[record.id].usable or record.tags}
    splits, dropped = resolve_splits(reading.records, described, settings)
    counts = reading.counts + dropped
    records = [record for record in reading.records if record.id in splits]
    if not any(captions[record.id].faults for record in records):
        _refuse_empty_train(root, Counter(splits.values()), 0, dropped[RESTVAL_DROPPED])
    paths, findings = _examine(root, records, settings.images, workers, cache)

    result = CatalogResult([], [], [], counts)
    for position, record in enumerate(records):
        split, path, finding = splits[record.id], paths.get(record.id, ""), findings.get(record.id)
        if finding and finding.reason:
            result.rejects.append(Reject(record.id, path, split, "", finding.reason))
            continue
        faults = captions[record.id].faults
        result.rejects.extend(Reject(record.id, path, split, caption, why) for caption, why in faults)
        result.captioned.append(_captioned(record, position, split, captions[record.id], counts))
        if finding:
            counts.update(f"images {note}" for note in finding.notes)
            result.images.append(
                Image(record.id, path, finding.sha256, finding.bytes, finding.width, finding.height)
            )
            result.pixels[record.id] = finding.pixels
    contents = Counter(result.pixels.values())
    counts[DUPLICATES] += contents.total() - len(contents)
    images_of = Counter(caption for record in result.captioned for caption in set(record.captions))
    counts[ELSEWHERE] += sum(
        images_of[caption] > 1 for record in result.captioned for caption in record.captions
    )
    return result


def check_catalog(root: Path, result: CatalogResult) -> None:
    """Refuse the same image in two splits, and a catalog without training images.

    Images are the same if their decoded pixels are, or if their names refer to one photograph on Flickr. A
    resized or recompressed copy is not detected.
    """
    splits = {record.id: record.split for record in result.captioned}
    first: dict[str, Image] = {}
    faults = []
    for image in sorted(result.images, key=lambda each: each.id):
        if splits[image.id] != "gallery":
            other = first.setdefault(result.pixels[image.id], image)
            if splits[other.id] != splits[image.id]:
                pair = f"{other.id!r} ({splits[other.id]}) and {image.id!r} ({splits[image.id]})"
                faults.append(f"{pair} are the same image")
    refuse(root, faults, "remove one of them, or put both in the same split")
    refuse_duplicate_photos(root, splits)
    _refuse_empty_train(root, Counter(splits.values()), len(result.rejects), result.counts[RESTVAL_DROPPED])


def summary(result: CatalogResult, rejects: Path) -> str:
    """Return a table of images, captions and rejects per split, the counts, and notes on missing splits."""
    images = Counter(record.split for record in result.captioned)
    captions = Counter(dict.fromkeys(SPLITS, 0))
    for record in result.captioned:
        captions[record.split] += len(record.captions)
    skipped = Counter(reject.split for reject in result.rejects)
    lines = [_row("split", "images", "captions", "rejects")]
    lines += [
        _row(split, images[split], captions[split], skipped[split])
        for split in SPLITS
        if images[split] or skipped[split]
    ]
    lines.append(_row("all", images.total(), captions.total(), skipped.total()))
    lines += [f"{what}: {count}" for what, count in sorted(result.counts.items()) if count]
    lines.append(f"rejects, in {rejects}: {len(result.rejects)}")
    if captions.total():
        lines += [
            f"note: no image with captions is in split {note}"
            for split, note in NEEDED.items()
            if not captions[split]
        ]
    return "\n".join(lines)


def resolve_splits(
    records: Sequence[Record], described: Collection[str], settings: Catalog
) -> tuple[dict[str, str], Counter[str]]:
    """Return the split of every image that stays in the data set, and the count of the others.

    Images that are not `described` by a usable caption or tags go to the split `gallery`.
    """
    without = [record for record in records if record.split is None]
    if without and len(without) < len(records):
        raise InputError(
            f"{without[0].source}: {len(without)} of {len(records)} images have no split "
            f"(first {without[0].id!r}, {without[0].place}); give every image a split, or none"
        )
    drawn = draw_splits([record.id for record in without if record.id in described], settings)
    splits: dict[str, str] = {}
    dropped = Counter[str]()
    val_images = 0
    for record in records:
        split = drawn.get(record.id, record.split)
        if split == "restval" and settings.restval == "drop":
            dropped[RESTVAL_DROPPED] += 1
            continue
        if split == "val" and record.id in described:
            val_images += 1
            if settings.val_images and val_images > settings.val_images:
                dropped[VAL_DROPPED] += 1
                continue
        if split == "restval":
            split = settings.restval
        splits[record.id] = split if split and record.id in described else "gallery"
    return splits | _hold_out(splits, settings), dropped


def draw_splits(ids: Sequence[str], settings: Catalog) -> dict[str, str]:
    """Assign a split to each id, with exact fractions, in an order that depends only on seed and id."""
    val = round(len(ids) * settings.val_share)
    test = round(len(ids) * settings.test_share)
    ordered = _shuffled(ids, settings.seed)
    names = ["val"] * val + ["test"] * test
    names += ["train"] * (len(ids) - len(names))
    return dict(zip(ordered, names, strict=True))


def _hold_out(splits: Mapping[str, str], settings: Catalog) -> dict[str, str]:
    """Return the training images that become test images, with that split."""
    counts, fraction = Counter(splits.values()), settings.test_from_train
    if not fraction:
        return {}
    if counts["test"]:
        raise InputError(
            f"params.yaml: catalog.test_from_train is {fraction}, but {counts['test']} images have the split "
            "'test' already; set it to 0"
        )
    training = [each for each, split in splits.items() if split == "train"]
    return dict.fromkeys(_shuffled(training, settings.seed)[: round(len(training) * fraction)], "test")


def _shuffled(ids: Iterable[str], seed: int) -> list[str]:
    """Return the ids in an order that depends only on seed and id."""
    return sorted(ids, key=lambda each: hashlib.sha256(f"{seed}:{each}".encode()).digest())


def clean(raw: str | None) -> tuple[str, list[str]]:
    """Return the normalized caption and what was changed or unusual, or raise `UnusableCaptionError`.

    Long captions, emoji and repeated captions are kept.

    Example:
        >>> clean(" A dog  in the snow . ")[0]
        'A dog in the snow .'
    """
    if raw is None:
        raise UnusableCaptionError("null")
    if len(raw) > MAX_CAPTION:
        raise UnusableCaptionError(f"too long: {len(raw):,} characters, more than {MAX_CAPTION:,}")
    if _SURROGATE.search(raw):
        raise UnusableCaptionError("not valid Unicode (a lone surrogate)")
    spaced = " ".join(_CONTROL.sub(" ", raw).split())
    if not spaced:
        raise UnusableCaptionError("empty")
    caption = unicodedata.normalize("NFC", spaced)
    symbols = not caption.isascii() and any(unicodedata.category(each) == "So" for each in caption)
    if not symbols and not any(map(str.isalnum, caption)):
        raise UnusableCaptionError("punctuation only")
    noted = {
        RESPACED: spaced != raw.strip(" "),
        COMPOSED: caption != spaced,
        LONG_CAPTIONS: len(caption) > LONG,
        EMOJI: symbols,
    }
    return caption, [note for note, holds in noted.items() if holds]


@dataclass(frozen=True)
class _Captions:
    """The usable captions of one image, counts of what was changed, and the faults of the others."""

    usable: list[str] = field(default_factory=list)
    notes: Counter[str] = field(default_factory=Counter)
    faults: list[tuple[str, str]] = field(default_factory=list)  # caption, reason


def _check_records(records: Iterable[Record]) -> None:
    """Refuse unsafe names, repeated ids, unknown splits and captions that are not strings."""
    faults: defaultdict[Path, list[str]] = defaultdict(list)
    first: dict[str, Record] = {}
    for record in records:
        found = [*_faults(record)]
        other = first.setdefault(record.id, record)
        if other is not record:
            where = "" if other.source == record.source else f" of {other.source}"
            found.append(f"has the same name as {other.place}{where}")
        faults[record.source] += [f"{record.place} {record.id!r} {fault}" for fault in found]
    for source, its_faults in faults.items():
        refuse(source, its_faults, "fix or remove these entries")


def _faults(record: Record) -> Iterable[str]:
    fault = path_fault(record.id)
    if fault:
        yield fault
    elif record.id.rpartition("/")[2] in ("", "."):
        yield "is not the name of a file"
    if record.split is not None and record.split not in KNOWN_SPLITS:
        yield f"has an unknown split: {not_one_of(record.split, KNOWN_SPLITS)}"
    for number, caption in enumerate(record.captions):
        if caption is not None and not isinstance(caption, str):
            yield f"has a caption {number} that is not a string: {caption!r:.40}"
    for kind, names in (("tag", record.tags), ("user tag", record.user_tags)):
        for name in names:
            if _SURROGATE.search(name):
                yield f"has a {kind} that is not valid Unicode: {name!r:.40}"


def _clean(record: Record, captions_per_image: int) -> _Captions:
    cleaned = _Captions()
    for number, raw in enumerate(record.captions):
        assert raw is None or isinstance(raw, str), "_check_records refuses anything else"
        try:
            caption, notes = clean(raw)
        except UnusableCaptionError as error:
            cleaned.faults.append(((raw or "")[:MAX_CAPTION], f"caption {number} is {error}"))
            continue
        if captions_per_image and len(cleaned.usable) == captions_per_image:
            cleaned.notes[CAPTIONS_DROPPED] += 1
        else:
            cleaned.usable.append(caption)
            cleaned.notes.update(notes)
    cleaned.notes[REPEATED] = len(cleaned.usable) - len(set(cleaned.usable))
    return cleaned


def _refuse_empty_train(root: Path, sizes: Counter[str], rejected: int, dropped: int) -> None:
    """Refuse a data set without training images, unless all its images are in the split `gallery`."""
    if sizes["train"] or sizes.keys() == {"gallery"}:
        return
    found = ", ".join(f"{count} {split}" for split, count in sorted(sizes.items()))
    fault = (
        f"no image with captions or tags is in the split 'train' ({found})" if found else "no image is left"
    )
    reasons = {
        f"images and captions rejected: {rejected}, see the rejects file": rejected,
        f"images of the split 'restval' left out: {dropped}, see catalog.restval": dropped,
    }
    advice = "; ".join(reason for reason, count in reasons.items() if count) or "add some"
    raise InputError(f"{root}: {fault}; {advice}")


def _examine(
    root: Path, records: list[Record], images: str, workers: int, cache: Path | None
) -> tuple[dict[str, str], dict[str, Finding]]:
    """Return the path below `root` and the finding of every image, by id; both empty for `images: none`."""
    if images == NONE:
        if not any(record.captions or record.tags for record in records):
            raise InputError(
                f"{root}: catalog.images is none, and no image has a caption or tag; set it to auto"
            )
        return {}, {}
    folder = image_folder(root, images, [record.id for record in records])
    paths = {record.id: (Path(folder) / record.id).as_posix() for record in records}
    base = root.absolute()
    file = findings_file(cache, root) if cache else None
    findings = examine_all([base / path for path in paths.values()], workers, file)
    return paths, {identity: findings[base / path] for identity, path in paths.items()}


def _captioned(
    record: Record, position: int, split: str, captions: _Captions, counts: Counter[str]
) -> Captioned:
    if split != "gallery":
        counts.update(captions.notes)
        counts[TAGS_ONLY] += not captions.usable
        return Captioned(record.id, split, tuple(captions.usable), record.tags, position, record.user_tags)
    counts[WITHOUT_CAPTIONS] += record.split != "gallery"
    counts[GALLERY_CAPTIONS] += len(captions.usable)
    return Captioned(record.id, split, (), record.tags, position, record.user_tags)


def _row(split: str, images: object, captions: object, rejects: object) -> str:
    return f"{split:<8}{images:>10}{captions:>10}{rejects:>10}"
