"""Captions that a model has written: `annotations/captions.jsonl`.

The first line holds the format, the settings and the lineage, sealed as all text artifacts are. One line
per image follows: its `id`, its `sentences`, the best first, and the likeliest `concepts` with their
probabilities. Reading needs no torch, so that `fne describe` answers at once for the images of the catalog.
"""

import hashlib
import json
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fne.core.errors import InputError
from fne.core.files import read_bytes, write_text
from fne.store.artifact import Artifact, Format, Lineage, describe, is_sealed, repair_hint, seal_text

FORMAT = Format("fne-written-captions", 2)
NAME = "written_captions"  # in lineages


@dataclass(frozen=True)
class Sentence:
    """A sentence of a beam.

    Attributes:
        text: its words, separated by blanks.
        log_probability: the sum over its words and its end.
        score: the log probability, corrected for the length.
        ended: False if it was cut at the maximum length.
    """

    text: str
    log_probability: float
    score: float
    ended: bool


@dataclass(frozen=True)
class Written:
    """What a captioner wrote about an image: its sentences, the best first, and the concepts that it saw."""

    id: str
    sentences: tuple[Sentence, ...]
    concepts: dict[str, float]

    @property
    def caption(self) -> str:
        """The best sentence."""
        return self.sentences[0].text


def write_written(path: Path, written: Iterable[Written], settings: dict[str, Any], lineage: Lineage) -> None:
    """Write the captions of images, sorted by image id."""
    ordered = sorted(written, key=lambda each: each.id)
    lines = [{**FORMAT.header(), **describe(NAME, settings, lineage)}, *map(asdict, ordered)]
    write_text(path, seal_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)))


def read_written(path: Path, ids: Collection[str] | None = None) -> tuple[dict[str, Written], Artifact]:
    """Read captions that were written, of all images or of some.

    Raises:
        InputError: if the file is missing, damaged or of a newer format.
    """
    content = read_bytes(path)
    try:
        if not is_sealed(content):
            raise ValueError("its seal is missing")
        # Not splitlines(): JSON does not escape U+2028 and other separators that an id may hold.
        first, *lines = [line for line in content.decode().split("\n") if line]
        header = json.loads(first)
        FORMAT.check(path, header)
        if ids is not None:
            starts = tuple(json.dumps({"id": each}, ensure_ascii=False)[:-1] + "," for each in ids)
            lines = [line for line in lines if line.startswith(starts)]
        records = [_parse(json.loads(line)) for line in lines]
        digest = hashlib.sha256(content).hexdigest()
        artifact = Artifact(path, NAME, digest, header["settings"], header["lineage"])
        return {each.id: each for each in records}, artifact
    except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        raise InputError(f"{path}: not a file of written captions ({error}); {repair_hint(path)}") from None


def _parse(record: dict[str, Any]) -> Written:
    sentences = tuple(Sentence(**each) for each in record["sentences"])
    return Written(record["id"], sentences, dict(record["concepts"]))
