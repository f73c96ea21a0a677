"""Where an artifact comes from, and the check that artifacts belong together.

Every artifact carries its own settings and its lineage: the digest and settings of
each artifact it was made from, direct or not. A stage that reads several artifacts
merges their lineages, and two that disagree about a common ancestor are refused. So
one rule covers statistics of other activations, a model of another vocabulary and
vectors of another model alike.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fne.core.errors import InputError

Lineage = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Artifact:
    """An artifact on disk: its name in a lineage, its digest, what made it."""

    path: Path
    name: str
    digest: str
    settings: dict[str, Any] = field(default_factory=dict)
    lineage: Lineage = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse a lineage that is not one, as only a file written by another program has it."""
        entries = self.lineage.values() if isinstance(self.lineage, dict) else [None]
        if not all(isinstance(each, dict) and isinstance(each.get("digest"), str) for each in entries):
            raise InputError(
                f"{self.path}: damaged (its lineage names no digests); see `fne verify {self.path}`"
            )


def describe(name: str, settings: dict[str, Any], lineage: Lineage) -> dict[str, Any]:
    """Return what an artifact writes about itself into its own file."""
    return {"name": name, "settings": settings, "lineage": lineage}


def merge(*artifacts: Artifact) -> Lineage:
    """Return the lineage of whatever is made from `artifacts`.

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
                    f"{source} {name} {entry['digest'][:12]}…; run `dvc repro`"
                )
            merged[name] = entry
            sources[name] = source
    return dict(sorted(merged.items()))
