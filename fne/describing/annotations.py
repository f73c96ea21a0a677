"""What models wrote about images: `annotations/tags.jsonl` and `annotations/captions.jsonl`.

The first line of a file holds the format, the settings and the lineage, sealed as all text artifacts are. One
line per image follows, sorted by its `id`. Reading needs no torch. Scores and pages read these files.

Tags: the `tags` in the order in which they were written, the likeliest concepts as `top`, and the
`probabilities` of all concepts, in the order of their names in the first line. These are exact: each is the
shortest number that gives the same float32 again. What a tagger lacks is null: without a decoder it writes no
tags, without a concept head it has no probabilities.

Captions: the `sentences`, the best first, and the likeliest `concepts` with their probabilities. COCO's
server takes the best sentences in files of its own, with the numbers that COCO gives to images.
"""

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fne.core.errors import InputError
from fne.core.files import read_bytes, replacing_folder, write_text
from fne.describing.concepts import Concepts
from fne.store.artifact import Artifact, Format, Lineage, describe, described, repair_hint
from fne.store.checksums import is_sealed, seal_text

TAGS_FORMAT, TAGS = Format("fne-tags", 3), "tags"  # the name is that in lineages
CAPTIONS_FORMAT, CAPTIONS = Format("fne-written-captions", 2), "written_captions"
COCO_NUMBER = re.compile(r"([0-9]{1,18})(\.\w+)?$")
DIGITS = 4  # decimals of the probabilities of the likeliest concepts

FAULTS = (ValueError, TypeError, KeyError, IndexError, RecursionError)  # what a file of another format raises


@dataclass(frozen=True)
class Tagged:
    """The answers of a tagger for one image."""

    id: str
    tags: list[str] | None
    top: list[str] | None
    probabilities: list[float] | None


@dataclass(frozen=True)
class TaggedFile:
    """The content of a file of tags."""

    artifact: Artifact
    concepts: Concepts
    images: list[Tagged]


@dataclass(frozen=True)
class WrittenSentence:
    """A sentence of a beam."""

    text: str  # its words, separated by blanks
    log_probability: float  # the sum over its words and its end
    score: float  # the log probability, corrected for the length
    ended: bool  # False if it was cut at the maximum length


@dataclass(frozen=True)
class Written:
    """What a captioner wrote about an image: its sentences, the best first, and the concepts that it saw."""

    id: str
    sentences: tuple[WrittenSentence, ...]
    concepts: dict[str, float]

    @property
    def caption(self) -> str:
        """The best sentence."""
        return self.sentences[0].text


def write_tagged(
    path: Path, tagged: Iterable[Tagged], concepts: Concepts, settings: dict[str, Any], lineage: Lineage
) -> None:
    """Write the tags of images, sorted by image id."""
    header = {
        **TAGS_FORMAT.header(),
        **describe(TAGS, settings, lineage, {"write_tags": {}}),
        "concepts": asdict(concepts),
    }
    _write(path, header, tagged)


def read_tagged(path: Path) -> TaggedFile:
    """Read the tags of images."""
    content = read_bytes(path)
    try:
        header, lines = _open(path, content, TAGS_FORMAT)
        images = [Tagged(**json.loads(line)) for line in lines]
        return TaggedFile(_artifact(path, TAGS, content, header), Concepts(**header["concepts"]), images)
    except FAULTS as error:
        raise InputError(f"{path}: not a file of tags ({error}); {repair_hint(path)}") from None


def write_written(path: Path, written: Iterable[Written], settings: dict[str, Any], lineage: Lineage) -> None:
    """Write the captions of images, sorted by image id."""
    about = describe(CAPTIONS, settings, lineage, {"write_captions": {}})
    _write(path, {**CAPTIONS_FORMAT.header(), **about}, written)


def read_written(path: Path, ids: Collection[str] | None = None) -> tuple[dict[str, Written], Artifact]:
    """Read captions that were written, of all images or of some."""
    content = read_bytes(path)
    try:
        header, lines = _open(path, content, CAPTIONS_FORMAT)
        if ids is not None:
            starts = tuple(json.dumps({"id": each}, ensure_ascii=False)[:-1] + "," for each in ids)
            lines = [line for line in lines if line.startswith(starts)]
        records = [written_from_json(json.loads(line)) for line in lines]
        return {each.id: each for each in records}, _artifact(path, CAPTIONS, content, header)
    except FAULTS as error:
        raise InputError(f"{path}: not a file of written captions ({error}); {repair_hint(path)}") from None


def write_coco_results(target: Path, written: Mapping[str, Written], source: Path) -> list[Path]:
    """Write the best sentences as COCO's caption server takes them: lists of `image_id` and `caption`.

    A file per folder of images, such as `captions_val2014_fne_results.json` of `val2014/`. The number of an
    image is at the end of its name, as in `COCO_val2014_000000000042.jpg`.
    """
    results: dict[str, dict[int, str]] = {}
    for image, own in written.items():
        number = COCO_NUMBER.search(image)
        if number is None:
            raise InputError(
                f"{source}: image {image!r} has no number at the end of its name, as COCO's have"
            )
        folder = Path(image).parent.name
        others = results.setdefault("_".join(filter(None, ["captions", folder, "fne_results.json"])), {})
        if int(number[1]) in others:
            raise InputError(
                f"{source}: several images of {folder or 'the data set'} have the number {number[1]}"
            )
        others[int(number[1])] = own.caption
    if target.exists():
        raise InputError(f"{target}: exists already; remove it, or choose another name with --output")
    with replacing_folder(target) as temporary:
        for name, captions in results.items():
            listed = [{"image_id": number, "caption": captions[number]} for number in sorted(captions)]
            write_text(temporary / name, json.dumps(listed, ensure_ascii=False) + "\n")
    return [target / name for name in results]


def _write(path: Path, header: dict[str, Any], images: Iterable[Tagged | Written]) -> None:
    lines = [header, *(asdict(each) for each in sorted(images, key=lambda each: each.id))]
    write_text(path, seal_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)))


def _open(path: Path, content: bytes, form: Format) -> tuple[dict[str, Any], list[str]]:
    """Return the header of a file and its other lines."""
    if not is_sealed(content):
        raise ValueError("its seal is missing")
    # Not splitlines(): JSON does not escape U+2028 and other separators that an id or a tag may hold.
    first, *lines = [line for line in content.decode().split("\n") if line]
    header = json.loads(first)
    form.check(path, header)
    return header, lines


def _artifact(path: Path, name: str, content: bytes, header: dict[str, Any]) -> Artifact:
    return described(path, name, hashlib.sha256(content).hexdigest(), header)


def written_from_json(record: dict[str, Any]) -> Written:
    """Return what `asdict` of a `Written` made."""
    sentences = tuple(WrittenSentence(**each) for each in record["sentences"])
    return Written(record["id"], sentences, dict(record["concepts"]))
