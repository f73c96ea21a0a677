"""The two catalog files: the images of a data set, and their captions.

They are separate so that a corrected caption does not repeat the extraction. Both begin with a line that
holds the format and the seal. One JSON object per line follows, sorted by image id.

- `images.jsonl`: `id`, `path` below the data set's root, `sha256` and `bytes` of the file, `width`, `height`.
- `captions.jsonl`: `id`, `split`, `captions`, `tags`, `position`, the image's index in the data set's own
  order, by which published protocols choose images, and `user_tags`, the noisy tags that users gave.

`catalog.json`, beside them, records the settings and the data set that they were made with, and their
digests. No stage depends on it: a data set that was moved, or a setting without an effect, repeats nothing.
"""

import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sized
from dataclasses import asdict, dataclass
from itertools import pairwise
from os.path import isdir, isfile
from pathlib import Path
from typing import Any, TypeVar

from fne.core.errors import InputError
from fne.core.files import read_bytes, text_digest, write_text
from fne.store.artifact import (
    Artifact,
    Contents,
    Format,
    Kind,
    Lines,
    describe,
    made,
    parse_document,
    repair_hint,
    repeated,
    summary,
)
from fne.store.checksums import is_sealed, seal_text

Record = TypeVar("Record")

IMAGES = Format("fne-images", 2)
CAPTIONS = Format("fne-captions", 4)
RECORD = Format("fne-catalog", 2)
SPLITS = ("train", "val", "test", "gallery")
# Where the pipeline writes `captions.jsonl`.
IMAGES_FILE, CAPTIONS_FILE = Path("data/images.jsonl"), Path("data/captions.jsonl")
RECORD_NAME = "catalog.json"

# Folders in which data sets keep their annotations, one level below their root.
SUBFOLDERS = ("annotations", "flickr8k_text")
# The endings of annotation files; they matter only if the root is not on this machine.
ENDINGS = (".csv", ".json", ".jsonl", ".tar", ".token", ".tsv", ".txt")

# File names of Flickr8k and Flickr30k; the number is that of the photograph at Flickr.
_FLICKR8K = re.compile(r"(\d{5,})_[0-9a-f]{8,10}(?:_[a-z])?\.jpe?g", re.IGNORECASE)
_FLICKR30K = re.compile(r"(\d{5,})\.jpe?g", re.IGNORECASE)


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
    """The captions and tags of one image; `gallery` images have no captions, others may have tags only."""

    id: str
    split: str
    captions: tuple[str, ...]
    tags: tuple[str, ...]
    position: int | None = None
    user_tags: tuple[str, ...] = ()

    @property
    def caption_ids(self) -> list[str]:
        """One id per caption: the image's id and the caption's index."""
        return [f"{self.id}#{position}" for position in range(len(self.captions))]


def write_images(path: Path, images: Iterable[Image]) -> str:
    """Write `images.jsonl`; return its digest."""
    return _write(path, IMAGES, images)


def write_captions(path: Path, captioned: Iterable[Captioned]) -> str:
    """Write `captions.jsonl`; return its digest."""
    return _write(path, CAPTIONS, captioned)


def write_record(
    path: Path, digests: Mapping[str, str], settings: dict[str, Any], files: dict[str, str]
) -> None:
    """Write `catalog.json`, with the SHA-256 of each catalog file and the MD5 of the data set by its path."""
    listed = {name: {"digest": digest, "settings": {}} for name, digest in digests.items()}
    header = RECORD.header() | describe("catalog", settings, listed, {"catalog": {}})
    content = header | {"files": files}
    write_text(path, seal_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n"))


def read_record(path: Path) -> Artifact:
    """Read `catalog.json`; the files that it belongs to are its lineage."""
    content = read_bytes(path)
    document = parse_document(path, content, RECORD, repair_hint(path))
    try:
        settings, lineage, files = (document[key] for key in ("settings", "lineage", "files"))
    except KeyError as error:
        raise InputError(f"{path}: damaged (no {error}); {repair_hint(path)}") from None
    digest, sections = hashlib.sha256(content).hexdigest(), document.get("sections") or {}
    return Artifact(path, "catalog", digest, settings, lineage, files, sections)


def record_of(artifact: Artifact) -> Artifact | None:
    """Return the record of a catalog file, if it is there and belongs to this very file."""
    place = artifact.path.with_name(RECORD_NAME)
    if artifact.name not in ("images", "captions") or not place.is_file():
        return None
    record = read_record(place)
    return record if record.lineage.get(artifact.name, {}).get("digest") == artifact.digest else None


def read_images(path: Path) -> tuple[list[Image], Artifact]:
    """Read `images.jsonl`."""
    images, digest = _read(path, IMAGES, _image)
    return images, Artifact(path, "images", digest)


def read_captions(path: Path) -> tuple[list[Captioned], Artifact]:
    """Read `captions.jsonl`."""
    captioned, digest = _read(path, CAPTIONS, _captioned)
    return captioned, Artifact(path, "captions", digest)


def in_split(captioned: Iterable[Captioned], split: str) -> list[Captioned]:
    """Return the records of one split, in the order of the catalog."""
    return [record for record in captioned if record.split == split]


def captioned_in(captioned: Iterable[Captioned], split: str) -> list[Captioned]:
    """Return the records of one split that have captions, in the order of the catalog."""
    return [record for record in in_split(captioned, split) if record.captions]


def require_images(captioned: Sized, split: str, least: int, purpose: str) -> None:
    """Refuse a split with too few images, saying what they are needed for."""
    if len(captioned) < least:
        raise InputError(
            f"the catalog has {len(captioned)} captioned images in split '{split}'; {purpose} needs at least "
            f"{least}; see `catalog` in params.yaml"
        )


def split_ids(captioned: Iterable[Captioned], split: str) -> list[str]:
    """Return the ids of one split's images, for reading their rows."""
    return [record.id for record in in_split(captioned, split)]


def split_artifact(path: Path, captioned: Iterable[Captioned], split: str) -> Artifact:
    """Return the images of a split as an artifact: an ancestor of what is fitted on them.

    Its digest depends on the ids alone: a corrected caption does not change it.
    """
    ids = split_ids(captioned, split)
    return Artifact(path, f"{split}_images", text_digest("\n".join(ids)), {"images": len(ids)})


def image_root(root: str | Path) -> Path:
    """Return the folder that the paths of the catalog's images start from.

    `catalog.root` names it, or the annotation file of a data set with many images: whenever DVC checks the
    status, it looks at every file of a folder that a stage depends on. The catalog has the digests of images.

    Example:
        >>> image_root("/data/coco/annotations/captions_val2017.json").as_posix()
        '/data/coco'
        >>> image_root("/data/coco").as_posix()
        '/data/coco'
    """
    path = Path(root)
    if not is_annotation_file(path):
        return path
    return path.parent.parent if path.parent.name.lower() in SUBFOLDERS else path.parent


def is_annotation_file(path: Path) -> bool:
    """Return whether a root is a file; the ending decides if it is not on this machine."""
    # Not the methods of Path, which raise an error for a name that is too long.
    return isfile(path) or (not isdir(path) and path.suffix.lower() in ENDINGS)  # noqa: PTH112, PTH113


def refuse_duplicate_photos(place: Path, splits: Mapping[str, str]) -> None:
    """Refuse a catalog that has one photograph in two splits, under two names."""
    pairs = duplicate_photos(splits)
    if pairs:
        first, other = (f"{each!r} ({splits[each]})" for each in pairs[0])
        raise InputError(
            f"{place}: {first} and {other} are the same photograph of Flickr, one pair of "
            f"{len(pairs)}; Flickr8k is part of Flickr30k: put both in the same split, or leave one out"
        )


def duplicate_photos(splits: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return pairs of image ids that name one photograph but are in different splits.

    Flickr8k is contained in Flickr30k: `1000268201_693b08cb0e.jpg` of the one is `1000268201.jpg` of the
    other, and the bytes of the files may differ. In other data sets a bare number can mean anything, so it
    counts only if a name of Flickr8k's form has the same number. The gallery does not count.

    Example:
        >>> duplicate_photos({"a/1000268201_693b08cb0e.jpg": "train", "b/1000268201.jpg": "test"})
        [('a/1000268201_693b08cb0e.jpg', 'b/1000268201.jpg')]
    """
    by_number: defaultdict[str, list[str]] = defaultdict(list)
    for identity in sorted(splits):
        name = identity.rpartition("/")[2]
        match = _FLICKR8K.fullmatch(name) or _FLICKR30K.fullmatch(name)
        if match and splits[identity] != "gallery":
            by_number[match[1]].append(identity)
    return [
        (first, other)
        for same in by_number.values()
        for first, other in pairwise(same)
        if splits[first] != splits[other]
        and any(_FLICKR8K.fullmatch(each.rpartition("/")[2]) for each in same)
    ]


def _write(path: Path, form: Format, records: Iterable[Image | Captioned]) -> str:
    ordered = sorted(records, key=lambda record: record.id)
    lines = [form.header(), *map(asdict, ordered)]
    text = seal_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    write_text(path, text)
    return text_digest(text)


def _image(record: dict[str, Any]) -> Image:
    image = Image(**record)
    _check_texts(image.id, image.path, image.sha256)
    if not all(isinstance(each, int) for each in (image.bytes, image.width, image.height)):
        raise ValueError(f"sizes of {image.id!r} are not numbers")
    if image.path.startswith("/") or ".." in image.path.split("/") or "\0" in image.path:
        raise ValueError(f"{image.path!r} leads out of the data set")
    return image


def _captioned(record: dict[str, Any]) -> Captioned:
    lists = [record["captions"], record["tags"], record["user_tags"]]
    if not all(isinstance(each, list) for each in lists):
        raise ValueError("captions, tags and user tags are not lists")
    captions, tags, user_tags = map(tuple, lists)
    _check_texts(record["id"], record["split"], *captions, *tags, *user_tags)
    position = record.get("position")
    if position is not None and not isinstance(position, int):
        raise ValueError(f"{position!r} is not a position")
    return Captioned(record["id"], record["split"], captions, tags, position, user_tags)


def _check_texts(*values: Any) -> None:
    """Refuse what is not text, and lone surrogates, which cannot be written again."""
    for value in values:
        if not isinstance(value, str):
            raise ValueError(f"{str(value)[:40]} is not text")
    "".join(values).encode()


def _read(path: Path, form: Format, parse: Callable[[Any], Record]) -> tuple[list[Record], str]:
    """Return the records of a catalog file and the file's digest."""
    content = read_bytes(path)
    try:
        sealed = is_sealed(content)
        # Not splitlines(): JSON does not escape U+2028 and other separators that a caption may hold.
        lines = [json.loads(line) for line in content.decode().split("\n") if line]
        if not lines:
            raise ValueError("it is empty")
        form.check(path, lines.pop(0))
        if not sealed:
            raise ValueError("its seal is missing")
        return [parse(line) for line in lines], hashlib.sha256(content).hexdigest()
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise InputError(f"{path}: not a catalog file ({error}); {repair_hint(path)}") from None


def _open_images(path: Path) -> Contents:
    images, artifact = read_images(path)
    ids = [image.id for image in images]
    return Contents(artifact, image_ids=ids, faults=repeated(path, ids))


def _describe_images(path: Path) -> Lines:
    images, artifact = read_images(path)
    size = sum(image.bytes for image in images)
    return summary(artifact, f"catalog of {len(images)} images", f"images    {size:,} bytes in all")


def _open_captions(path: Path) -> Contents:
    captioned, artifact = read_captions(path)
    ids = [record.id for record in captioned]
    return Contents(
        artifact,
        [split_artifact(path, captioned, split) for split in SPLITS],
        ids,
        [each for record in captioned for each in record.caption_ids],
        repeated(path, ids),
    )


def _describe_captions(path: Path) -> Lines:
    captioned, artifact = read_captions(path)
    images = Counter(record.split for record in captioned)
    captions = Counter(dict.fromkeys(SPLITS, 0))
    for record in captioned:
        captions[record.split] += len(record.captions)
    return summary(
        artifact,
        f"catalog of {sum(captions.values())} captions of {len(captioned)} images",
        *(
            f"{split:<9} {images[split]} images, {captions[split]} captions"
            for split in SPLITS
            if images[split]
        ),
        *_count_names("tags", [record.tags for record in captioned]),
        *_count_names("user tags", [record.user_tags for record in captioned]),
    )


def _count_names(what: str, each: list[tuple[str, ...]]) -> Lines:
    names = set[str]().union(*each)
    return [f"{what:<9} {len(names)} different ones on {sum(map(bool, each))} images"] if names else []


def _describe_record(path: Path) -> Lines:
    record = read_record(path)
    files = [f"    {name:<14} {md5} (MD5)" for name, md5 in record.files.items()]
    return [f"{path}: how the catalog was made", *made(record), *files]


KINDS = (
    Kind("images.jsonl", lambda path, _: _open_images(path), _open_images, _describe_images),
    Kind("captions.jsonl", lambda path, _: _open_captions(path), _open_captions, _describe_captions),
    Kind(
        RECORD_NAME,
        lambda path, _: Contents(read_record(path)),
        lambda path: Contents(read_record(path)),
        _describe_record,
    ),
)
