"""Finished training runs, kept in the scratch folder by what decides their result.

The key is the digest of the settings that apply, the digests of what it reads, the kind of device, the
numbers of processes and threads and `TRAINER_VERSION`. So when an edited comment or the block of a variant
that was not chosen makes DVC run a training stage again, it finishes in seconds with the same result.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fne.core.errors import InputError
from fne.core.files import check_own, text_digest
from fne.core.processes import ALONE, Processes
from fne.store.catalog import Captioned
from fne.store.tensors import read_description, read_sealed, write_sealed
from fne.training.best_epoch import Point, point_from_json
from fne.training.row_source import RowSource

# Raised whenever the same settings and inputs train to other weights. Small reference runs in the
# tests detect it.
TRAINER_VERSION = 2
FOLDER = "trained"
# The settings that name a training run for people, as far as its task has them.
NAMING = ("method", "text_encoder", "loss", "condition", "inject", "cell", "learns", "seed")


@dataclass(frozen=True)
class Finished:
    """The result of a training run."""

    points: list[Point]  # its validations
    kept: Point  # the one whose weights were kept
    state: dict[str, Tensor]  # all weights
    updates: int = 0  # none in closed form
    collapsed: bool = False  # whether the task found that the model maps everything to one point


def training_key(
    settings: Mapping[str, Any], read: Mapping[str, str], device: str, processes: int
) -> dict[str, Any]:
    """Return everything that decides the result of a training run that starts now, with the threads of torch.

    Args:
        settings: those that apply.
        read: the digests of what it reads, by name. Digests of whole artifacts would change when a store gets
            rows for other images.
    """
    return {
        "version": TRAINER_VERSION,
        "settings": dict(settings),
        "inputs": dict(read),
        "device": device,
        "processes": processes,
        "threads": torch.get_num_threads(),
    }


def digest_of(rows: RowSource, captioned: Sequence[Captioned]) -> str:
    """Return the digest of some images: their rows, and what the catalog says of each."""
    records = [[each.id, each.captions, each.tags, each.user_tags] for each in captioned]
    return text_digest(json.dumps([rows.digest([each.id for each in captioned]), records]))


def load_finished(scratch: Path, key: Mapping[str, Any], processes: Processes = ALONE) -> Finished | None:
    """Return the finished training run of a key, to all processes; a damaged file is removed."""
    path = kept_path(scratch, FOLDER, key)
    found = processes.from_first(load_kept(path, key) if processes.first else None)
    # Earlier versions did not keep the number of updates: such a training run is made again.
    if found is None or "updates" not in found[0]:
        return None
    description, tensors = found
    points = [point_from_json(each) for each in description["points"]]
    return Finished(points, points[description["kept"]], tensors, description["updates"])


def keep_finished(scratch: Path, key: Mapping[str, Any], done: Finished) -> None:
    """Keep a finished training run."""
    description = {
        "key": dict(key),
        "points": [asdict(point) for point in done.points],
        "kept": done.points.index(done.kept),
        "updates": done.updates,
    }
    write_sealed(kept_path(scratch, FOLDER, key), description, done.state)


@dataclass(frozen=True)
class FinishedFile:
    """A kept training, described for people."""

    path: Path
    summary: str


def finished_training_runs(scratch: Path) -> list[FinishedFile]:
    """Return the kept training runs of a scratch folder; a damaged one is described as such."""
    return [FinishedFile(path, _summary(path)) for path in sorted((scratch / FOLDER).glob("*.safetensors"))]


def _summary(path: Path) -> str:
    try:
        description = read_description(path)
        settings = description["key"]["settings"]
        best = point_from_json(description["points"][description["kept"]])
        names = [str(settings[key]) for key in NAMING if key in settings]
        return f"{', '.join(names)}; {best.scores.name} {best.scores.main:.1f}"
    except (InputError, KeyError, IndexError, TypeError, ValueError):
        return "damaged"


def load_kept(path: Path, key: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
    """Return the description and the tensors that a key is kept with; a damaged file is removed."""
    check_own(path)
    if not path.exists():
        return None
    try:
        description, tensors = read_sealed(path)
        if description["key"] == json.loads(json.dumps(dict(key))):
            return description, tensors
    except (InputError, KeyError):
        path.unlink(missing_ok=True)
    return None


def kept_path(scratch: Path, folder: str, key: Mapping[str, Any]) -> Path:
    """Return the file of the scratch folder that keeps the result of a key."""
    digest = text_digest(json.dumps(dict(key), sort_keys=True))
    return scratch / folder / f"{digest[:32]}.safetensors"
