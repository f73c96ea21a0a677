"""The original format of COCO: `captions_<name>.json`, and `instances_<name>.json` for tags.

The name, for example `train2017`, contains the split and is the folder of the images. The id of an image is
its path including that folder, unique across splits. Tags are the categories of the objects in an image.
"""

import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from fne.core.errors import InputError
from fne.datasets.readers.base import (
    Reading,
    Record,
    as_model,
    normalize_path,
    read_json,
    refuse,
    sorted_tags,
)

UNKNOWN_IMAGE = "captions of images that the file does not list, left out"


class _Image(BaseModel):
    id: int
    file_name: str


class _Caption(BaseModel):
    image_id: int
    caption: Any


class _Captions(BaseModel):
    images: list[_Image]
    annotations: list[_Caption] = []  # the files of test images have none


class _Object(BaseModel):
    image_id: int
    category_id: int


class _Category(BaseModel):
    id: int
    name: str


class _Instances(BaseModel):
    annotations: list[_Object]
    categories: list[_Category]


def read_coco(root: Path, annotations: list[Path]) -> Reading:
    """Read any number of caption files, one per split and year."""
    readings = [_read_file(source) for source in annotations]
    records = [record for reading in readings for record in reading.records]
    return Reading(records, sum((reading.counts for reading in readings), Counter()))


def _read_file(source: Path) -> Reading:
    name = source.stem.partition("_")[2]
    split = re.match(r"(train|val|test)(?![a-z])", name.lower())
    if split is None:
        raise InputError(
            f"{source}: the file name contains no split; rename it, for example to captions_train2017.json"
        )
    content = as_model(read_json(source), _Captions, str(source))
    _refuse_repeated_ids(source, content.images)
    captions: defaultdict[int, list[object]] = defaultdict(list)
    for annotation in content.annotations:
        captions[annotation.image_id].append(annotation.caption)
    tags = _tags(source.with_name(f"instances_{name}{source.suffix}"))
    records = [
        Record(
            normalize_path(f"{name}/{image.file_name}"),
            split[1],
            tuple(captions.pop(image.id, ())),
            sorted_tags(tags.get(image.id, [])),
            source,
            f"image {number}",
        )
        for number, image in enumerate(content.images)
    ]
    return Reading(records, Counter({UNKNOWN_IMAGE: sum(map(len, captions.values()))}))


def _refuse_repeated_ids(source: Path, images: list[_Image]) -> None:
    repeated = [number for number, count in Counter(image.id for image in images).items() if count > 1]
    refuse(source, [f"image id {number} occurs twice" for number in repeated], "give every image a unique id")


def _tags(source: Path) -> dict[int, list[str]]:
    if not source.exists():
        return {}
    content = as_model(read_json(source), _Instances, str(source))
    names = {category.id: category.name for category in content.categories}
    unknown = {thing.category_id for thing in content.annotations} - names.keys()
    refuse(source, [f"category {number} has no name" for number in sorted(unknown)], "add it to 'categories'")
    tags: defaultdict[int, list[str]] = defaultdict(list)
    for thing in content.annotations:
        tags[thing.image_id].append(names[thing.category_id])
    return tags
