"""The two catalog files: which images there are, and what is said about them.

They are kept apart so that a corrected caption does not touch the extraction. Both
begin with a line that says what the file is and seals it (see `fne.store.formats`; files
of version 1 lack it), and hold one JSON object per line, sorted by image id.

`images.jsonl`: `id`, `path` below the data set's root, `sha256` and `bytes` of the
file, `width` and `height` in pixels.

`captions.jsonl`: `id`, `split`, `captions`, `tags`, and `position`, the image's place in the
data set's own order, by which published protocols choose images (null in older files).
"""

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from fne.core.errors import InputError
from fne.store.files import text_digest, write_text
from fne.store.formats import SEALED_SINCE, Format, how_to_mend, is_sealed, read_bytes, seal_text
from fne.store.lineage import Artifact

Record = TypeVar("Record")

IMAGES = Format("fne-images", 2)
CAPTIONS = Format("fne-captions", 2)
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
    position: int | None = None

    @property
    def caption_ids(self) -> list[str]:
        """One id for each caption: the image's id and the caption's position."""
        return [f"{self.id}#{position}" for position in range(len(self.captions))]


def write_images(path: Path, images: Iterable[Image]) -> None:
    """Write `images.jsonl`."""
    _write(path, IMAGES, images)


def write_captions(path: Path, captioned: Iterable[Captioned]) -> None:
    """Write `captions.jsonl`."""
    _write(path, CAPTIONS, captioned)


def read_images(path: Path) -> tuple[list[Image], Artifact]:
    """Read `images.jsonl`, checking its seal."""
    images, digest = _read(path, IMAGES, lambda record: Image(**record))
    return images, Artifact(path, "images", digest)


def read_captions(path: Path) -> tuple[list[Captioned], Artifact]:
    """Read `captions.jsonl`, checking its seal."""
    captioned, digest = _read(
        path,
        CAPTIONS,
        lambda record: Captioned(
            record["id"],
            record["split"],
            tuple(record["captions"]),
            tuple(record["tags"]),
            record.get("position"),
        ),
    )
    return captioned, Artifact(path, "captions", digest)


def in_split(captioned: Iterable[Captioned], split: str) -> list[Captioned]:
    """Return the records of one split, in the order of the catalog."""
    return [record for record in captioned if record.split == split]


def split_ids(captioned: Iterable[Captioned], split: str) -> list[str]:
    """Return the ids of one split's images, for reading their rows."""
    return [record.id for record in in_split(captioned, split)]


def split_artifact(path: Path, captioned: Iterable[Captioned], split: str) -> Artifact:
    """Return which images a split has, as an ancestor of what is fitted on it.

    Only the ids count: a corrected caption leaves the digest as it is.
    """
    ids = split_ids(captioned, split)
    return Artifact(path, f"{split}_images", text_digest("\n".join(ids)), {"images": len(ids)})


def _write(path: Path, form: Format, records: Iterable[Image | Captioned]) -> None:
    ordered = sorted(records, key=lambda record: record.id)
    lines = [form.header(), *map(asdict, ordered)]
    write_text(path, seal_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)))


def _read(path: Path, form: Format, parse: Callable[[Any], Record]) -> tuple[list[Record], str]:
    """Return the records of a catalog file and the file's digest."""
    content = read_bytes(path)
    try:
        sealed = is_sealed(content)
        # Not splitlines(): a caption may hold U+2028 and other separators that JSON leaves as they are.
        lines = [json.loads(line) for line in content.decode().split("\n") if line]
        if not lines:
            raise ValueError("it is empty")
        if "format" in lines[0]:
            form.check(path, header := lines.pop(0))
            if not sealed and header["version"] >= SEALED_SINCE:
                raise ValueError("its seal is missing")
        return [parse(line) for line in lines], hashlib.sha256(content).hexdigest()
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise InputError(f"{path}: not a catalog file ({error}); {how_to_mend(path)}") from None
