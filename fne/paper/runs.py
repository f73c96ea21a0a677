"""Finished runs of the pipeline, as they were recorded; `fne.paper.project` finds them."""

import json
from dataclasses import dataclass
from typing import Any

from fne.paper.measured import Measured
from fne.store.arrays import Arrays

Settings = dict[str, dict[str, Any]]  # section: key: value
Counts = dict[str, tuple[int, int]]  # split: images, captions

# The sections of params.yaml that decide a result; the others are about speed, the report and the demo's
# pictures, which the catalog's hash tells apart.
DECIDING = ("catalog", "extract", "embed", "tokenize", "train", "evaluate")
CAPTIONS = "data/captions.jsonl"


@dataclass(frozen=True)
class Run:
    """One run of the pipeline, to its evaluation."""

    name: str
    settings: Settings
    measured: list[Measured]
    started: bool | None
    hashes: dict[str, str]  # artifact: DVC's hash of it
    ranks: Arrays | None
    counts: Counts | None

    @property
    def seed(self) -> int | None:
        """The seed of the training."""
        return self.settings.get("train", {}).get("seed")

    @property
    def kind(self) -> str:
        """What runs have in common that differ in the seed of the training alone."""
        sections = {name: dict(self.settings.get(name, {})) for name in DECIDING}
        sections["train"].pop("seed", None)
        # A path says nothing about what stands there.
        read = (CAPTIONS, sections["extract"].get("weights", ""), sections["embed"].get("source", ""))
        return json.dumps([sections, [self.hashes.get(path) for path in read]], sort_keys=True)
