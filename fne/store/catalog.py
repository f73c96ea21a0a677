"""The two catalog files: which images there are, and what is said about them.

They are kept apart so that a corrected caption does not touch the extraction. Both
hold one JSON object per line, sorted by image id.

`images.jsonl`: `id`, `path` below the data set's root, `sha256` and `bytes` of the
file, `width` and `height` in pixels.

`captions.jsonl`: `id`, `split`, `captions`, `tags`.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from fne.core.errors import InputError
from fne.store.files import file_digest, text_digest, write_text
from fne.store.lineage import Artifact

Record = TypeVar("Record")

SPLITS = ("train", "val", "test", "gallery")


@dataclass(frozen=True)
class Image:
    """One image file of the data set."""

    id: str
    path: str
    sha256: str
    bytes: int
    width: int
    height: int


@dataclass(frozen=True)
class Captioned:
    """What a data set says about one image; `gallery` images have no captions."""

    id: str
    split: str
    captions: tuple[str, ...]
    tags: tuple[str, ...]

    @property
    def caption_ids(self) -> list[str]:
        """One id for each caption: the image's id and the caption's position."""
        return [f"{self.id}#{position}" for position in range(len(self.captions))]


def write_images(path: Path, images: Iterable[Image]) -> None:
    """Write `images.jsonl`."""
    _write(path, images)


def write_captions(path: Path, captioned: Iterable[Captioned]) -> None:
    """Write `captions.jsonl`."""
    _write(path, captioned)


def read_images(path: Path) -> tuple[list[Image], Artifact]:
    """Read `images.jsonl`."""
    images = _read(path, lambda record: Image(**record))
    return images, Artifact(path, "images", file_digest(path))


def read_captions(path: Path) -> tuple[list[Captioned], Artifact]:
    """Read `captions.jsonl`."""
    captioned = _read(
        path,
        lambda record: Captioned(
            record["id"], record["split"], tuple(record["captions"]), tuple(record["tags"])
        ),
    )
    return captioned, Artifact(path, "captions", file_digest(path))


def in_split(captioned: Iterable[Captioned], split: str) -> list[Captioned]:
    """Return the records of one split, in the order of the catalog."""
    return [record for record in captioned if record.split == split]


def split_artifact(path: Path, captioned: Iterable[Captioned], split: str) -> Artifact:
    """Return which images a split has, as an ancestor of what is fitted on it.

    Only the ids count: a corrected caption leaves the digest as it is.
    """
    ids = [record.id for record in in_split(captioned, split)]
    return Artifact(path, f"{split}_images", text_digest("\n".join(ids)), {"images": len(ids)})


def _write(path: Path, records: Iterable[Image | Captioned]) -> None:
    ordered = sorted(records, key=lambda record: record.id)
    write_text(path, "".join(json.dumps(asdict(record), ensure_ascii=False) + "\n" for record in ordered))


def _read(path: Path, parse: Callable[[Any], Record]) -> list[Record]:
    try:
        # Not splitlines(): a caption may hold U+2028 and other separators that JSON leaves as they are.
        return [parse(json.loads(line)) for line in path.read_text(encoding="utf-8").split("\n") if line]
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; run `dvc repro`, or `dvc pull` to fetch it") from None
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(f"{path}: not a catalog file ({error}); run `dvc repro catalog`") from None
