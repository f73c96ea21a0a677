"""Karpathy's JSON format: `images[]` with `filename`, `split` and `sentences[].raw`.

The images of COCO also have a `filepath`, the folder of the file, and its additional training images have the
split `restval`. An image can have `tags` and noisy `user_tags`, lists of names, which Karpathy's own files
do not have.
"""

from pathlib import Path
from typing import Any

from pydantic import BaseModel

from fne.datasets.readers.base import Reading, Record, as_model, normalize_path, read_json, sorted_tags


class _Sentence(BaseModel):
    raw: Any


class _Image(BaseModel):
    filename: str
    filepath: str = ""
    split: str
    sentences: list[_Sentence] = []
    tags: list[str] = []
    user_tags: list[str] = []


class _Dataset(BaseModel):
    images: list[_Image]


def read_karpathy(root: Path, annotations: list[Path]) -> Reading:
    """Read the file `dataset*.json` of a data set."""
    (source,) = annotations
    dataset = as_model(read_json(source), _Dataset, str(source))
    return Reading([_record(image, source, number) for number, image in enumerate(dataset.images)])


def _record(image: _Image, source: Path, number: int) -> Record:
    name = f"{image.filepath}/{image.filename}" if image.filepath else image.filename
    captions = tuple(sentence.raw for sentence in image.sentences)
    tags, user_tags = sorted_tags(image.tags), sorted_tags(image.user_tags)
    return Record(normalize_path(name), image.split, captions, tags, source, f"image {number}", user_tags)
