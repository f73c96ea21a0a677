"""What every artifact has: a lineage, a format with a version, and a kind that owns this format.

Lineage: every artifact stores its settings, the sections of `params.yaml` that these come from, and the
digest, settings and sections of each artifact that it was made from, directly or not. A stage that reads
several artifacts refuses two that disagree about a common ancestor. This one rule detects statistics of other
activations, a model of another vocabulary, and vectors of another model.

Format: every artifact names its format and version. A newer version is refused. `fne.store.checksums`
describes its seal.

Kind: what `fne verify` and `fne inspect` do with an artifact stands beside the code that reads and writes it.
Its functions raise `InputError` if an artifact cannot be read.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fne.core.errors import InputError
from fne.store.checksums import is_sealed

# More than settings and lineages have.
MAX_DEPTH = 20
HEAD = 256  # bytes of a text file that hold its seal and its format

# The digest, the settings and the sections of each ancestor, by its name.
Lineage = dict[str, dict[str, Any]]
# The sections of `params.yaml` that settings come from, such as `train`, or single keys, such as
# `catalog.root`. With each go the values given there that the settings have in another form, by their keys;
# None for a value that has no effect.
Sections = dict[str, dict[str, Any]]
Lines = list[str]
# Called with the number of bytes that were checked.
Done = Callable[[int], object]


@dataclass(frozen=True)
class Artifact:
    """An artifact on disk: its name in a lineage, its digest, its settings and its own lineage.

    Only artifacts that no other is made from have `files`: elsewhere it would change with every moved file.
    `pipeline` is the file of the pipeline that makes it, if that is not the default one.
    """

    path: Path
    name: str
    digest: str
    settings: dict[str, Any] = field(default_factory=dict)
    lineage: Lineage = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)  # the MD5 of what it was made from, by path
    sections: Sections = field(default_factory=dict)
    pipeline: str = ""

    def __post_init__(self) -> None:
        """Refuse an invalid lineage, which only another program can have written."""
        entries = self.lineage.values() if isinstance(self.lineage, dict) else [None]
        if not all(isinstance(each, dict) and isinstance(each.get("digest"), str) for each in entries):
            raise InputError(f"{self.path}: damaged (its lineage names no digests); {repair_hint(self.path)}")
        if not isinstance(self.files, dict) or not all(isinstance(each, str) for each in self.files.values()):
            raise InputError(f"{self.path}: damaged (its files have no digests); {repair_hint(self.path)}")
        given = self.sections.values() if isinstance(self.sections, dict) else [None]
        known = isinstance(self.settings, dict) and all(isinstance(each, dict) for each in given)
        if not known or _is_deep([self.settings, self.lineage, self.sections]):
            raise InputError(
                f"{self.path}: damaged (its settings are not settings); {repair_hint(self.path)}"
            )


def describe(
    name: str, settings: dict[str, Any], lineage: Lineage, sections: Sections | None = None
) -> dict[str, Any]:
    """Return what an artifact stores about itself in its file."""
    made_in = {"sections": sections} if sections else {}
    return {"name": name, "settings": settings, **made_in, "lineage": lineage}


def described(path: Path, name: str, digest: str, header: Mapping[str, Any], pipeline: str = "") -> Artifact:
    """Return the artifact whose file stores `header`, as `describe` made it, or raise `KeyError`."""
    sections = header.get("sections") or {}
    return Artifact(
        path, name, digest, header["settings"], header["lineage"], sections=sections, pipeline=pipeline
    )


def merge(*artifacts: Artifact) -> Lineage:
    """Return the lineage of an artifact that is made from `artifacts`."""
    merged: Lineage = {}
    sources: dict[str, str] = {}
    for artifact in artifacts:
        entry: dict[str, Any] = {"digest": artifact.digest, "settings": artifact.settings}
        own = {artifact.name: entry | ({"sections": artifact.sections} if artifact.sections else {})}
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
    return " ".join(dict.fromkeys(["dvc repro", *(each.pipeline for each in artifacts if each.pipeline)]))


def newest(names: Sequence[str], artifact: Artifact) -> tuple[str, str]:
    """Return name and digest of the first of `names` that it is or was made from, or raise `KeyError`."""
    if artifact.name in names:
        return artifact.name, artifact.digest
    name = next((each for each in names if each in artifact.lineage), names[-1])
    return name, artifact.lineage[name]["digest"]


def require_same(names: Sequence[str], *artifacts: Artifact) -> None:
    """Refuse artifacts whose `newest` ancestors differ; `merge` detects two of the same name."""
    first, *others = artifacts
    for other in others:
        if newest(names, first) != newest(names, other):
            told = [
                f"{each.path} {'holds' if each.name in names else 'was made from'} {name} {digest[:12]}…"
                for each in (first, other)
                for name, digest in [newest(names, each)]
            ]
            raise InputError(f"{told[0]}, but {told[1]}; run `{_repro((first, other))}`")


@dataclass(frozen=True)
class Format:
    """A kind of file, and the newest version of it that this code writes and reads."""

    name: str
    version: int

    def header(self) -> dict[str, Any]:
        """Return what a file stores about its format."""
        return {"format": self.name, "version": self.version}

    def check(self, path: Path, description: dict[str, Any]) -> None:
        """Refuse a file of another format or of a newer version."""
        name, version = description["format"], description["version"]
        if name != self.name or version > self.version:
            raise InputError(
                f"{path}: needs a version of fne that reads {name} {version}; "
                f"this one reads {self.name} up to {self.version}"
            )


@dataclass(frozen=True)
class Contents:
    """What an artifact holds."""

    artifact: Artifact | None = None  # its name, digest, settings and lineage; None for files that have none
    # The splits of a catalog, which other artifacts may be made from.
    splits: list[Artifact] = field(default_factory=list)
    image_ids: list[str] | None = None  # the images that it has an entry for
    caption_ids: list[str] | None = None  # the captions that it has an entry for
    faults: Lines = field(default_factory=list)  # one line for each fault, without advice


@dataclass(frozen=True)
class Kind:
    """What is done with one kind of artifact."""

    # A file's name such as `images.jsonl`, its ending such as `.html`, or words for a list of kinds.
    name: str
    check: Callable[[Path, Done], Contents]  # reads everything, and returns what is there with all faults
    # Reads as little as possible, and returns what the artifact says that it is.
    open: Callable[[Path], Contents] | None = None
    # Returns the lines of `fne inspect`, none if there is nothing special to say.
    describe: Callable[[Path], Lines] | None = None
    # Whether a path is that of such an artifact, where the name does not say it.
    is_at: Callable[[Path], bool] | None = None
    # Whether this is a folder of artifacts, of which each is checked and described by itself.
    has_parts: bool = False

    def recognizes(self, path: Path) -> bool:
        """Return whether a path is that of such an artifact, which need not be intact, or exist."""
        if self.is_at is not None:
            return self.is_at(path)
        return self.name in (path.name, path.suffix) and not path.is_dir()


@dataclass(frozen=True)
class Source:
    """A file that an artifact is made from and that is not an artifact itself, such as weights.

    `key` of a section of `params.yaml` names the file. `fault` returns how the artifact was made in another
    way than with the file and the recorded section, which also has keys that are recorded alone, such as
    `embed.source`.
    """

    artifact: str
    section: str
    key: str
    fault: Callable[[Artifact, Path, Mapping[str, Any]], str | None]


def folder_kind(*names: str) -> Kind:
    """Return the kind of folders of artifacts, which have at least one file of these names."""
    return Kind(
        f"folders with {' or '.join(names)}",
        lambda path, done: Contents(),
        is_at=lambda path: any((path / name).is_file() for name in names),
        has_parts=True,
    )


def names_format(path: Path, form: Format) -> bool:
    """Return whether the head of a text file names a format."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return f'"format": "{form.name}"'.encode() in file.read(HEAD)


def summary(artifact: Artifact, what: str, *lines: str) -> Lines:
    """Return the lines of `fne inspect` about a file: what it is, its size, digest, own lines and origin."""
    size = f"{artifact.path.stat().st_size:,} bytes"
    first = [f"{artifact.path}: {what}, {size}", f"  digest    {artifact.digest}"]
    return [*first, *(f"  {line}" for line in lines), *made(artifact)]


def made(artifact: Artifact) -> Lines:
    """Return the lines about what an artifact was made with and from."""
    lines = []
    if artifact.settings:
        lines += ["  made with", *(f"    {key}: {value}" for key, value in artifact.settings.items())]
    if artifact.lineage:
        entries = artifact.lineage.items()
        lines += ["  made from", *(f"    {name:<14} {entry['digest']}" for name, entry in entries)]
    return lines


def repeated(path: Path, ids: Iterable[str]) -> Lines:
    """Return the fault of ids that come twice, as one line at most."""
    twice = [each for each, count in Counter(ids).items() if count > 1]
    return [f"{path}: repeats {len(twice)} ids, the first is {twice[0]!r}"] if twice else []


def repair_hint(artifact: Path) -> str:
    """Return the advice for a damaged artifact.

    DVC would restore a damaged copy in its cache each time; only `fne verify` looks at that copy.
    """
    return f"run `fne verify {artifact}` to see how to repair it"


def parse_document(path: Path, content: bytes, form: Format, remedy: str) -> dict[str, Any]:
    """Return the JSON object that a file consists of, after checking its seal and format."""
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
