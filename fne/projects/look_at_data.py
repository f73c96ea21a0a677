"""A look at a data set for a new project: what it has, what it lacks, and how the section `catalog` names it.

Only annotations are read. The stage `catalog` decodes every image.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fne.core.errors import InputError
from fne.datasets.location import dataset_root, image_folder
from fne.datasets.read import NEEDED, OPTIONAL, Catalog, resolve_splits
from fne.datasets.readers import AUTO, find_annotations, read_dataset
from fne.datasets.readers.base import Record, path_fault
from fne.store.catalog import SPLITS
from fne.store.images import image_exists

# The part of the training images that becomes test images, if the data set has splits and no test images.
HELD_OUT = 0.1


@dataclass(frozen=True)
class Look:
    """What a data set is."""

    catalog: dict[str, Any]  # keys of the section `catalog` with their values
    found: list[str]  # lines about what is there
    missing: list[str]  # lines about what is not, each with what to do
    has_captions: bool
    has_tags: bool


def look_at(data: Path, root: str) -> Look:
    """Read the annotations of a data set, which `catalog.root` will name as `root`."""
    folder, annotations = dataset_root(str(data), AUTO, AUTO)
    reading = read_dataset(folder, AUTO, annotations)
    (form,) = find_annotations(folder, AUTO, annotations)
    records = [record for record in reading.records if not path_fault(record.id)]
    described = {record.id for record in records if record.tags or any(map(_is_text, record.captions))}
    splits, _ = resolve_splits(records, described, Catalog())
    catalog: dict[str, Any] = {"root": root, "format": form}
    has_splits = any(record.split for record in records)
    if has_splits and "test" not in splits.values():
        catalog["test_from_train"] = HELD_OUT
        splits, _ = resolve_splits(records, described, Catalog(**catalog))
    images, captions = Counter(splits.values()), Counter[str]()
    for record in records:
        captions[splits.get(record.id, "")] += sum(map(_is_text, record.captions))
    shown = [f"{split} {images[split]:,} ({captions[split]:,} captions)" for split in SPLITS if images[split]]
    has_captions, has_tags = captions.total() > 0, any(record.tags for record in records)
    found = [
        f"{data}: format {form}, {len(records):,} images, {captions.total():,} captions"
        f"{', with tags' * has_tags}",
        f"  splits    {', '.join(shown)}{_origin(described, has_splits, catalog)}",
    ]
    missing = []
    if not has_captions:
        catalog["captions"] = OPTIONAL
        missing.append(_without_captions(has_tags))
    if has_captions:
        missing += [
            f"no image with captions is in split {NEEDED[each]}" for each in NEEDED if not captions[each]
        ]
    try:
        place = image_folder(folder, AUTO, [record.id for record in records])
    except InputError as error:
        missing.append(error.message)
    else:
        catalog["images"] = AUTO if place == "." else place
        missing += _absent(folder / place, records)
    return Look(catalog, found, missing, has_captions, has_tags)


def _is_text(caption: object) -> bool:
    return isinstance(caption, str) and bool(caption.strip())


def _origin(described: set[str], has_splits: bool, catalog: dict[str, Any]) -> str:
    if "test_from_train" in catalog:
        return "; test is held out of train by catalog.test_from_train"
    return "" if has_splits or not described else "; drawn by catalog.val_share and catalog.test_share"


def _without_captions(has_tags: bool) -> str:
    if has_tags:
        return "no captions: there is no text to train with; `fne init --with tagging` trains a tagger"
    return "no captions: nothing can be trained, but look-alikes can be found"


def _absent(folder: Path, records: Sequence[Record]) -> list[str]:
    absent = [record.id for record in records if not image_exists(folder / record.id)]
    if not absent:
        return []
    return [
        f"{len(absent)} of {len(records)} images are not in {folder}, the first is {absent[0]!r}; "
        "add them, or set catalog.max_rejects"
    ]
