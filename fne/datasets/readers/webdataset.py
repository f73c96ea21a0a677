"""WebDataset: images and captions in tar archives ("shards"), as img2dataset and many others write them.

The files of a sample have one name up to the first dot, its key: `0001.jpg`, `0001.txt`, `0001.json`. The
image stays in its archive; its id is the path of the archive and its name there (`00000.tar/0001.jpg`).

- Captions: `captions` of the JSON file, else the lines of the text file, else `caption` of the JSON file.
- Split: `split` of the JSON file, otherwise the beginning of the archive's name (`train-0000.tar`).
- Tags and user tags: `tags` and `user_tags` of the JSON file.
"""

import re
from collections import Counter
from pathlib import Path

from pydantic import BaseModel

from fne.core.errors import InputError
from fne.datasets.readers.base import (
    EXTENSIONS,
    Reading,
    Record,
    as_model,
    examples,
    parse_json,
    refuse,
    sorted_tags,
)
from fne.store.tar_files import Member, TarError, list_members, read_member

IMAGES = frozenset(suffix.removeprefix(".") for each in EXTENSIONS.values() for suffix in each)
TEXT, JSON = ("txt", "caption"), "json"
MAX_TEXT = 1 << 20  # bytes of a text or JSON file
SPLITS = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
OTHERS = "files of samples that are neither images nor captions, skipped"
NO_IMAGE = "samples without an image, skipped"


class _Description(BaseModel):
    """What is read of a sample's JSON file; other keys are ignored."""

    caption: str | None = None
    captions: list[str | None] | None = None
    split: str | None = None
    tags: list[str] = []
    user_tags: list[str] = []


def read_webdataset(root: Path, annotations: list[Path]) -> Reading:
    """Read all samples of the archives, in the order of their names and of the files in them."""
    records = list[Record]()
    counts, others = Counter[str](), list[str]()
    for archive in annotations:
        try:
            members = list_members(archive)
            samples = group_samples(members)
            faults = [fault for key, files in samples.items() for fault in _faults(key, files, members)]
            refuse(archive, faults, "fix or remove these samples")
            for key, files in samples.items():
                image = next((files[suffix] for suffix in files if suffix in IMAGES), None)
                if image is None:
                    counts[NO_IMAGE] += 1
                    continue
                known = (*IMAGES, *TEXT, JSON)
                others += [name for suffix, name in files.items() if suffix not in known]
                records.append(_read_sample(root, archive, key, image, files, members))
        except TarError as error:
            raise InputError(f"{archive}: {error}; write or download it again") from None
    counts[f"{OTHERS} ({examples(others)})"] = len(others)
    return Reading(records, +counts)


def group_samples(names: dict[str, Member]) -> dict[str, dict[str, str]]:
    """Return the names of each sample's files by their endings in lower case.

    Example:
        >>> group_samples(dict.fromkeys(["a/1.jpg", "a/1.seg.PNG", "a/.hidden"]))
        {'a/1': {'jpg': 'a/1.jpg', 'seg.png': 'a/1.seg.PNG'}}
    """
    samples: dict[str, dict[str, str]] = {}
    for name in names:
        folder, _, file = name.rpartition("/")
        stem, _, suffix = file.partition(".")
        if stem and suffix:
            key = f"{folder}/{stem}" if folder else stem
            samples.setdefault(key, {})[suffix.lower()] = name
    return samples


def split_of(archive: Path) -> str | None:
    """Return the split that the name of an archive begins with, or None.

    Example:
        >>> split_of(Path("valid_003.tar")), split_of(Path("00003.tar")), split_of(Path("training.tar"))
        ('val', None, None)
    """
    found = re.match(r"[a-z]+(?=[-_.0-9])", archive.name.lower())
    return SPLITS.get(found[0]) if found else None


def _faults(key: str, files: dict[str, str], members: dict[str, Member]) -> list[str]:
    images = [name for suffix, name in files.items() if suffix in IMAGES]
    large = [
        name for suffix, name in files.items() if suffix in (*TEXT, JSON) and members[name].size > MAX_TEXT
    ]
    return [
        *[f"sample {key!r} has several images ({', '.join(images)})"] * (len(images) > 1),
        *(f"{name!r} has {members[name].size} bytes, more than {MAX_TEXT}" for name in large),
    ]


def _read_sample(
    root: Path, archive: Path, key: str, image: str, files: dict[str, str], members: dict[str, Member]
) -> Record:
    described = _Description()
    if JSON in files:
        place = f"{archive}: {files[JSON]}"
        described = as_model(
            parse_json(_read_text(archive, files[JSON], members), place), _Description, place
        )
    captions: tuple[object, ...] = tuple(described.captions or ())
    text = next((files[suffix] for suffix in TEXT if suffix in files), None)
    if not captions and text:
        captions = tuple(line for line in _read_text(archive, text, members).splitlines() if line.strip())
    if not captions and described.caption is not None:
        captions = (described.caption,)
    own = archive.relative_to(root).as_posix()
    split = described.split or split_of(archive)
    tags, user_tags = sorted_tags(described.tags), sorted_tags(described.user_tags)
    return Record(f"{own}/{image}", split, captions, tags, archive, f"sample {key!r}", user_tags)


def _read_text(archive: Path, name: str, members: dict[str, Member]) -> str:
    try:
        return read_member(archive, members[name]).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{archive}: {name}: not valid UTF-8 at byte {error.start}; fix the file") from None
