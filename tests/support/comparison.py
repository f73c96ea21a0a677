"""Two recorded runs without a DVC project, for comparisons."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fne.experiments.runs import CAPTIONS, HISTORY, IMAGES, Result, Run
from fne.store.arrays import Arrays, read_arrays
from tests.support.report import SENTENCES, write_history, write_run

SETTINGS = {"train": {"margin": 0.2, "seed": 0, "loss": "sum_hinge", "clip": 0.0}}
GIVEN = frozenset({"train.margin", "train.seed", "train.loss"})
NUMBERS = (10.0, 20.0, 30.0, 4.0, 10.0, 20.0, 30.0, 4.0)


@dataclass
class FakeProject:
    """Stands for `fne.experiments.runs.Project`: its runs have their files in one folder."""

    root: Path
    named: dict[str, Run]

    def runs(self):
        return list(self.named.values())

    def run(self, name):
        return self.named[name]

    def file(self, run, path):
        names = {CAPTIONS: "captions.jsonl", IMAGES: "images.jsonl"}
        place = self.root / names.get(path, f"{run.name}/{path}")
        return place if place.exists() else None

    def link_folder(self, run, path, target):
        if path != HISTORY or not (self.root / "history").exists():
            return False
        (target / "plots").symlink_to(self.root / "history" / "plots")
        return True


def write_project(folder: Path, seeds: int = 1, sentences=SENTENCES, pictures: bool = True) -> FakeProject:
    """Write a project whose run `b` has margin 0.1 and the ranks of its queries in another order."""
    write_run(folder, sentences=sentences, pictures=pictures)
    write_history(folder, {"train/loss": [3, 2, 1], "val/rsum": [1, 2, 4]})
    stored = read_arrays(folder / "ranks.h5", "ranks")
    found = {}
    for seed in range(seeds):
        suffix = str(seed) if seed else ""
        found[f"a{suffix}"] = _run(f"a{suffix}", seed, 0.2, folder, shifted(stored, 0), 300.0)
        found[f"b{suffix}"] = _run(f"b{suffix}", seed, 0.1, folder, shifted(stored, 1), 310.0)
    return FakeProject(folder, found)


def shifted(ranks: Arrays, by: int) -> Arrays:
    """Return ranks where each query has the answers of another one."""
    names = ["image_ranks", "image_best", "image_best_scores"]
    names += [name.replace("image", "caption") for name in names]
    values = {name: np.roll(ranks[name], by, axis=0) for name in names}
    return Arrays(ranks.artifact, ranks.values | values)


def _run(name: str, seed: int, margin: float, folder: Path, ranks: Arrays, validation: float) -> Run:
    settings = {**SETTINGS, "train": SETTINGS["train"] | {"seed": seed, "margin": margin}}
    settings["catalog"] = {"root": str(folder / "photos")}
    hashes = {CAPTIONS: "c", IMAGES: "i", "fne/matching": name[0]}
    result = Result("test", "full", NUMBERS, 4, 7, 439.3)
    return Run(name, settings, [result], True, hashes, ranks, None, None, 290.0, validation, GIVEN)
