"""Karpathy's JSON: `images[]` with `filename`, `split` and `sentences[].raw`.

COCO's images also have a `filepath`, the folder of the file. The extra training
images of COCO have the split `restval`.
"""

from pathlib import Path
from typing import Any

from pydantic import BaseModel

from fne.datasets.names import normal
from fne.datasets.records import Reading, Record
from fne.datasets.strict import as_model, read_json


class _Sentence(BaseModel):
    raw: Any


class _Image(BaseModel):
    filename: str
    filepath: str = ""
    split: str
    sentences: list[_Sentence] = []


class _Dataset(BaseModel):
    images: list[_Image]


def read_karpathy(root: Path, annotations: list[Path]) -> Reading:
    """Read the one `dataset*.json` of a data set."""
    (source,) = annotations
    dataset = as_model(read_json(source), _Dataset, str(source))
    return Reading([_record(image, source, number) for number, image in enumerate(dataset.images)])


def _record(image: _Image, source: Path, number: int) -> Record:
    name = f"{image.filepath}/{image.filename}" if image.filepath else image.filename
    captions = tuple(sentence.raw for sentence in image.sentences)
    return Record(normal(name), image.split, captions, (), source, f"image {number}")
