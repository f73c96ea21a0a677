"""The workers of a crew and their work units, and what is said when one of them fails."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from pathlib import Path
from typing import Any

from fne.activations.worker import Description
from fne.store.catalog import Image

# How often an image may end a worker that computes nothing else, and a worker may end while it starts.
TRIES = 3

NO_WORKERS = (
    "every worker on the Ray cluster was killed while it started, perhaps for lack of memory; what is "
    "finished is kept: set runtime.threads, so that fewer workers share a node, and run again"
)


class Step(Enum):
    """What comes before the first unit of a worker: its process, then its model."""

    START = "start"
    LOAD = "load"


@dataclass(frozen=True)
class Unit:
    """The positions of images that are computed together, or of a suspect that is computed alone."""

    positions: list[int]
    suspect: bool = False
    tries: int = 0


@dataclass(eq=False)
class Member:
    """A worker, which Ray may start again in another process.

    Attributes:
        actor: Ray's handle of it.
        ready: whether its process has the model.
        units: how many units it has.
        with_suspect: whether one of them is a suspect, and so the only one.
        life: how often its process was asked for.
        failures: how often it has died in a row before it was ready.
        since: when it was ready for the first time.
    """

    actor: Any
    ready: bool = False
    units: int = 0
    with_suspect: bool = False
    life: int = 0
    failures: int = 0
    since: float = 0.0


def units(positions: Iterator[int], size: int) -> Iterator[Unit]:
    """Yield work units of images, reading positions as late as possible."""
    while unit := list(islice(positions, size)):
        yield Unit(unit)


def difference(answer: Description, ours: dict[str, Any]) -> str:
    """Say what a worker computes with that is not what the driver would compute with."""
    theirs = answer.made_with
    keys = [key for key in sorted(ours.keys() | theirs.keys()) if ours.get(key) != theirs.get(key)]
    here, there = (", ".join(f"{key} {each.get(key)}" for key in keys) for each in (ours, theirs))
    return (
        f"worker {answer.process} would compute other rows: it has {there}, but the driver has {here}; "
        "install the same versions on all nodes, and let them see the same weights"
    )


def accusation(image: Image, root: Path) -> str:
    """Name an image that has ended all workers that computed it."""
    return (
        f"{root / image.path}: image {image.id!r} has ended its worker {TRIES} times, computed alone, "
        "perhaps for lack of memory; what is finished is kept: replace the file or remove it from the data "
        "set, and run `dvc repro`"
    )
