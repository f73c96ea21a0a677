"""The catalog of a data set: every image looked at, every caption judged.

Faults that no skipping can mend stop the work before the first image is opened.
Single images and captions that cannot be used become rejects, and what had to be
normalized is counted.
"""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from fne.core.errors import InputError
from fne.datasets.captions import REPEATED, UnusableCaptionError, clean, repetitions
from fne.datasets.checks import check_records
from fne.datasets.examine import examine_all
from fne.datasets.location import NONE, image_folder
from fne.datasets.records import Reading, Record, refuse
from fne.datasets.rejects import Reject
from fne.datasets.remember import Finding, memory
from fne.datasets.splits import DROPPED, Splitting, resolve_splits
from fne.store.catalog import Captioned, Image
from fne.store.photos import refuse_shared_photos

CAPTIONLESS = "images without captions, in the split 'gallery'"
UNWANTED = "captions of images in the split 'gallery', left out"
TWINS = "images with the same content as another one, kept"


@dataclass(frozen=True)
class Built:
    """The catalog, what was skipped, and in words and numbers what was normalized."""

    images: list[Image]
    captioned: list[Captioned]
    rejects: list[Reject]
    counts: Counter[str]
    pixels: dict[str, str] = field(default_factory=dict)  # the digest of each picture, by image id


@dataclass(frozen=True)
class _Captions:
    """The usable captions of one image, what was normalized, and the faults of the others."""

    usable: list[str] = field(default_factory=list)
    notes: Counter[str] = field(default_factory=Counter)
    faults: list[tuple[str, str]] = field(default_factory=list)  # caption, reason


def build_catalog(
    root: Path, reading: Reading, images: str, splitting: Splitting, workers: int, remembered: Path | None
) -> Built:
    """Judge and normalize a data set.

    Args:
        root: the data set's folder.
        reading: what its reader found.
        images: the folder of the images below `root`, `auto`, or `none`.
        splitting: how to split a data set that leaves it to us.
        workers: the number of processes that decode images.
        remembered: a scratch folder that keeps findings for the next run, or None.

    Raises:
        InputError: on faults that concern the data set as a whole.
    """
    check_records(reading.records)
    captions = {record.id: _clean(record) for record in reading.records}
    captioned = {identity for identity, its_captions in captions.items() if its_captions.usable}
    splits, dropped = resolve_splits(reading.records, captioned, splitting)
    counts = reading.counts + dropped
    records = [record for record in reading.records if record.id in splits]
    if not any(captions[record.id].faults for record in records):
        refuse_empty_train(root, Counter(splits.values()), 0, dropped[DROPPED])
    paths, findings = _examine(root, records, images, workers, remembered)

    built = Built([], [], [], counts)
    for position, record in enumerate(records):
        split, path, finding = splits[record.id], paths.get(record.id, ""), findings.get(record.id)
        if finding and finding.reason:
            built.rejects.append(Reject(record.id, path, split, "", finding.reason))
            continue
        faults = captions[record.id].faults
        built.rejects.extend(Reject(record.id, path, split, caption, why) for caption, why in faults)
        built.captioned.append(_captioned(record, position, split, captions[record.id], counts))
        if finding:
            counts.update(f"images {note}" for note in finding.notes)
            built.images.append(
                Image(record.id, path, finding.sha256, finding.bytes, finding.width, finding.height)
            )
            built.pixels[record.id] = finding.pixels
    contents = Counter(built.pixels.values())
    counts[TWINS] += contents.total() - len(contents)
    return built


def check_catalog(root: Path, built: Built) -> None:
    """Refuse an image in two splits under two names, and a catalog without training images.

    Images are the same if their decoded pixels are, or if their names tell the same photograph of
    Flickr. A picture that was scaled, or compressed again with loss, is not recognized.
    """
    splits = {record.id: record.split for record in built.captioned}
    first: dict[str, Image] = {}
    faults = []
    for image in sorted(built.images, key=lambda each: each.id):
        if splits[image.id] != "gallery":
            other = first.setdefault(built.pixels[image.id], image)
            if splits[other.id] != splits[image.id]:
                pair = f"{other.id!r} ({splits[other.id]}) and {image.id!r} ({splits[image.id]})"
                faults.append(f"{pair} are the same image")
    refuse(root, faults, "an image has one split: remove one of them, or put both in the same")
    refuse_shared_photos(root, splits)
    refuse_empty_train(root, Counter(splits.values()), len(built.rejects), built.counts[DROPPED])


def refuse_empty_train(root: Path, sizes: Counter[str], rejected: int, dropped: int) -> None:
    """Refuse a data set without training images, unless all its images are for the gallery.

    Args:
        root: the data set's folder.
        sizes: the number of images in each split.
        rejected: how many images and captions were skipped.
        dropped: how many images of the split 'restval' were left out.
    """
    if sizes["train"] or sizes.keys() == {"gallery"}:
        return
    found = ", ".join(f"{count} {split}" for split, count in sorted(sizes.items()))
    fault = f"no image with captions is in the split 'train' ({found})" if found else "no image is left"
    reasons = {
        f"images and captions rejected: {rejected}, see the rejects file": rejected,
        f"images of the split 'restval' left out: {dropped}, see catalog.restval": dropped,
    }
    advice = "; ".join(reason for reason, count in reasons.items() if count) or "add some"
    raise InputError(f"{root}: {fault}; {advice}")


def _clean(record: Record) -> _Captions:
    cleaned = _Captions()
    for number, raw in enumerate(record.captions):
        assert raw is None or isinstance(raw, str), "check_records refuses anything else"
        try:
            caption, notes = clean(raw)
        except UnusableCaptionError as error:
            cleaned.faults.append((raw or "", f"caption {number} is {error}"))
        else:
            cleaned.usable.append(caption)
            cleaned.notes.update(notes)
    cleaned.notes[REPEATED] = repetitions(cleaned.usable)
    return cleaned


def _examine(
    root: Path, records: list[Record], images: str, workers: int, remembered: Path | None
) -> tuple[dict[str, str], dict[str, Finding]]:
    """Return the path below `root` and the finding of every image, by id; nothing for `images: none`."""
    if images == NONE:
        if not any(record.captions for record in records):
            raise InputError(f"{root}: catalog.images is none, and no image has a caption; set it to auto")
        return {}, {}
    folder = image_folder(root, images, [record.id for record in records])
    paths = {record.id: (Path(folder) / record.id).as_posix() for record in records}
    base = root.absolute()
    scratch = memory(remembered, root) if remembered else None
    findings = examine_all([base / path for path in paths.values()], workers, scratch)
    return paths, {identity: findings[base / path] for identity, path in paths.items()}


def _captioned(
    record: Record, position: int, split: str, captions: _Captions, counts: Counter[str]
) -> Captioned:
    if split != "gallery":
        counts.update(captions.notes)
        return Captioned(record.id, split, tuple(captions.usable), record.tags, position)
    counts[CAPTIONLESS] += record.split != "gallery"
    counts[UNWANTED] += len(captions.usable)
    return Captioned(record.id, split, (), record.tags, position)
