"""What every artifact has: a lineage and a format with a version.

Lineage: every artifact stores its settings, and the digest and settings of each artifact that it
was made from, directly or not. A stage that reads several artifacts merges their lineages, and
refuses two that disagree about a common ancestor. This one rule detects statistics of other
activations, a model of another vocabulary, and vectors of another model.

Format: every artifact names its format and version. A newer version is refused.

Its seal is described in `fne.store.checksums`.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fne.core.errors import InputError
from fne.store.checksums import is_sealed

# What makes vectors, the last stage first.
MODELS = ("tuned", "model")
# The pipelines of artifacts that the default one does not make.
PIPELINES = {"captioner": "pipelines/captioning/dvc.yaml", "tagger": "pipelines/tagging/dvc.yaml"}
# More than settings and lineages have.
MAX_DEPTH = 20

# The digest and the settings of each ancestor, by its name.
Lineage = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Artifact:
    """An artifact on disk: its name in a lineage, its digest, its settings and its own lineage.

    `files` has the MD5, as DVC records it, of the files and folders that it was made from, by path. Only
    artifacts that no other is made from have it: elsewhere it would change with every moved file.
    """

    path: Path
    name: str
    digest: str
    settings: dict[str, Any] = field(default_factory=dict)
    lineage: Lineage = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse an invalid lineage, which only another program can have written."""
        entries = self.lineage.values() if isinstance(self.lineage, dict) else [None]
        if not all(isinstance(each, dict) and isinstance(each.get("digest"), str) for each in entries):
            raise InputError(f"{self.path}: damaged (its lineage names no digests); {repair_hint(self.path)}")
        if not isinstance(self.files, dict) or not all(isinstance(each, str) for each in self.files.values()):
            raise InputError(f"{self.path}: damaged (its files have no digests); {repair_hint(self.path)}")
        if not isinstance(self.settings, dict) or _is_deep([self.settings, self.lineage]):
            raise InputError(f"{self.path}: damaged (its settings are no settings); {repair_hint(self.path)}")


def describe(name: str, settings: dict[str, Any], lineage: Lineage) -> dict[str, Any]:
    """Return what an artifact stores about itself in its file."""
    return {"name": name, "settings": settings, "lineage": lineage}


def merge(*artifacts: Artifact) -> Lineage:
    """Return the lineage of an artifact that is made from `artifacts`.

    Raises:
        InputError: if two artifacts were made from different versions of a third, or if
            one was made from another version of the other.
    """
    merged: Lineage = {}
    sources: dict[str, str] = {}
    for artifact in artifacts:
        own = {artifact.name: {"digest": artifact.digest, "settings": artifact.settings}}
        for name, entry in (artifact.lineage | own).items():
            source = f"{artifact.path} holds" if name in own else f"{artifact.path} was made from"
            if name in merged and merged[name]["digest"] != entry["digest"]:
                raise InputError(
                    f"{sources[name]} {name} {merged[name]['digest'][:12]}…, but "
                    f"{source} {name} {entry['digest'][:12]}…; run `{_repro(artifacts)}`"
                )
            merged[name] = entry
            sources[name] = source
    return dict(sorted(merged.items()))


def _repro(artifacts: Sequence[Artifact]) -> str:
    """Return the command that makes artifacts again; `dvc repro` alone runs the default pipeline only."""
    own = [PIPELINES[each.name] for each in artifacts if each.name in PIPELINES]
    return " ".join(["dvc repro", *dict.fromkeys(own)])


def model_of(artifact: Artifact) -> tuple[str, str]:
    """Return the name and the digest of the model behind an artifact: the tuned one, if it was tuned.

    Raises:
        KeyError: if there is none.
    """
    if artifact.name in MODELS:
        return artifact.name, artifact.digest
    name = next((each for each in MODELS if each in artifact.lineage), MODELS[-1])
    return name, artifact.lineage[name]["digest"]


def require_same_model(*artifacts: Artifact) -> None:
    """Refuse artifacts of which some were made with a tuned network and others with the model before it.

    `merge` detects two tuned networks, and two models.

    Raises:
        InputError: with both digests.
    """
    first, *others = artifacts
    for other in others:
        if model_of(first) != model_of(other):
            told = [
                f"{each.path} {'holds' if each.name in MODELS else 'was made from'} {name} {digest[:12]}…"
                for each in (first, other)
                for name, digest in [model_of(each)]
            ]
            raise InputError(f"{told[0]}, but {told[1]}; run `dvc repro`")


@dataclass(frozen=True)
class Format:
    """A kind of file, and the newest version of it that this code writes and reads."""

    name: str
    version: int

    def header(self) -> dict[str, Any]:
        """Return what a file stores about its format."""
        return {"format": self.name, "version": self.version}

    def check(self, path: Path, description: dict[str, Any]) -> None:
        """Refuse a file of another format or of a newer version.

        Raises:
            InputError: with the format and version that the file needs.
            KeyError, TypeError: if the description names no format at all.
        """
        name, version = description["format"], description["version"]
        if name != self.name or version > self.version:
            raise InputError(
                f"{path}: needs a version of fne that reads {name} {version}; "
                f"this one reads {self.name} up to {self.version}"
            )


def repair_hint(artifact: Path) -> str:
    """Return the advice for a damaged artifact.

    The copy in DVC's cache may be damaged too, and DVC would restore it each time the artifact is removed.
    Only `fne verify` looks at that copy.
    """
    return f"run `fne verify {artifact}` to see how to repair it"


def parse_document(path: Path, content: bytes, form: Format, remedy: str) -> dict[str, Any]:
    """Return the JSON object that a file consists of, after checking its seal and format.

    Raises:
        InputError: if the file is damaged, which ends with `remedy`, or of a newer format.
    """
    try:
        sealed = is_sealed(content)
        document: dict[str, Any] = json.loads(content)
        form.check(path, document)
        if not sealed:
            raise ValueError("its seal is missing")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{path}: damaged ({_reason(error)}); {remedy}") from None
    return document


def _is_deep(value: Any) -> bool:
    """Return whether values are nested so deeply that functions that call themselves would fail."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
    return bool(level)


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, ValueError) else repr(error)
