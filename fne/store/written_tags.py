"""Tags that a tagger has written: `annotations/tags.jsonl`.

The first line holds the format, the settings, the lineage and the names of the concepts, sealed as all text
artifacts are. One line per image follows, sorted by its `id`: the `tags` in the order in which they
were written, the likeliest concepts as `top`, and the `probabilities` of all concepts, in the order of their
names. What a tagger lacks is null: without a decoder it writes no tags, without a recognizer it has no
probabilities.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fne.core.errors import InputError
from fne.core.files import read_bytes, write_text
from fne.store.artifact import Artifact, Format, Lineage, describe, is_sealed, repair_hint, seal_text

FORMAT = Format("fne-tags", 2)
NAME = "tags"  # in lineages
DIGITS = 4  # of probabilities


@dataclass(frozen=True)
class Tagged:
    """What a tagger says about one image."""

    id: str
    tags: list[str] | None
    top: list[str] | None
    probabilities: list[float] | None


@dataclass(frozen=True)
class TaggedFile:
    """The content of a file of tags."""

    artifact: Artifact
    concepts: list[str]
    images: list[Tagged]


def write_tagged(
    path: Path, tagged: Iterable[Tagged], concepts: Sequence[str], settings: dict[str, Any], lineage: Lineage
) -> None:
    """Write the tags of images, sorted by image id."""
    header = {**FORMAT.header(), **describe(NAME, settings, lineage), "concepts": list(concepts)}
    lines = [header, *map(asdict, sorted(tagged, key=lambda each: each.id))]
    write_text(path, seal_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)))


def read_tagged(path: Path) -> TaggedFile:
    """Read the tags of images.

    Raises:
        InputError: if the file is missing, damaged or of a newer format.
    """
    content = read_bytes(path)
    try:
        if not is_sealed(content):
            raise ValueError("its seal is missing")
        # Not splitlines(): JSON does not escape U+2028 and other separators that a tag may hold.
        header, *lines = [json.loads(line) for line in content.decode().split("\n") if line]
        FORMAT.check(path, header)
        digest = hashlib.sha256(content).hexdigest()
        artifact = Artifact(path, NAME, digest, header["settings"], header["lineage"])
        return TaggedFile(artifact, list(header["concepts"]), [Tagged(**line) for line in lines])
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise InputError(f"{path}: not a file of tags ({error}); {repair_hint(path)}") from None
