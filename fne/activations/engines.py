"""Where the rows of images are computed: in this process, or by the workers of a Ray cluster.

An engine is opened as `engine(recipe, say)` around all that is done with it. Its
`compute(job, positions)` yields the rows of a job's images in any order. It reads positions
as late as it can, because reading one locks it against other processes.
"""

import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fne.activations.cost import Effort, seconds_per_image
from fne.activations.extractor import Extractor
from fne.activations.processor import processor_name
from fne.activations.reading import ImageFiles, read_ahead
from fne.activations.settings import Choices
from fne.core.device import prepare_device
from fne.core.runtime import Runtime

Say = Callable[[str], None]


@dataclass(frozen=True)
class Recipe:
    """What an extractor is built from, wherever that is done.

    Attributes:
        choices: what decides the values of a row.
        weights: the weights file.
        runtime: how to compute.
    """

    choices: Choices
    weights: Path
    runtime: Runtime


@dataclass
class Job:
    """Images to compute.

    Attributes:
        files: the images of the catalog.
        extractor: from pixels to rows.
        batch: the number of images computed at once.
        workers: the number of processes that read images ahead.
        todo: how many there are at most.
        effort: where the engine notes what it took.
    """

    files: ImageFiles
    extractor: Extractor
    batch: int
    workers: int
    todo: int
    effort: Effort = field(default_factory=Effort)


@dataclass(frozen=True)
class Done:
    """Finished rows (images, features), the positions of their images, and what processor computed them."""

    positions: list[int]
    rows: np.ndarray
    processor: str


@dataclass(frozen=True)
class Engine:
    """A way to compute the rows of many images.

    Attributes:
        device: what computes.
        elsewhere: whether other processes compute, and this one needs no weights.
        compute: from positions to finished rows.
        pace: how long an image will take, in seconds, or None where only trying can tell.
    """

    device: torch.device
    elsewhere: bool
    compute: Callable[[Job, Iterator[int]], Generator[Done, None, None]]
    pace: Callable[[Extractor, int], float | None]


def compute_here(job: Job, positions: Iterator[int]) -> Generator[Done, None, None]:
    """Compute rows in this process; other processes only read images ahead."""
    reading: deque[int] = deque()

    def noted() -> Iterator[int]:
        for position in positions:
            reading.append(position)
            yield position

    extractor = job.extractor
    pixels = read_ahead(job.files, noted(), job.workers, pin=extractor.device.type == "cuda")
    processor = processor_name(extractor.device.type)
    for chunk in _batches(_timed(pixels, job.effort), job.batch):
        yield Done([reading.popleft() for _ in chunk], extractor.compute(chunk), processor)


def here(device: torch.device) -> Engine:
    """Return the engine that computes in this process, on a device that is ready."""
    return Engine(device, False, compute_here, seconds_per_image)


@contextmanager
def _local(recipe: Recipe, say: Say) -> Iterator[Engine]:
    yield here(prepare_device(recipe.runtime))


@contextmanager
def _ray(recipe: Recipe, say: Say) -> Iterator[Engine]:
    from fne.activations.cluster import open_cluster  # Ray is optional, and slow to import

    with open_cluster(recipe, say) as engine:
        yield engine


def _timed(pixels: Iterator[Tensor], effort: Effort) -> Iterator[Tensor]:
    while True:
        started = time.perf_counter()
        each = next(pixels, None)
        effort.input_seconds += time.perf_counter() - started
        if each is None:
            return
        yield each


def _batches(pixels: Iterator[Tensor], size: int) -> Iterator[list[Tensor]]:
    batch: list[Tensor] = []
    for each in pixels:
        batch.append(each)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


ENGINES: dict[str, Callable[[Recipe, Say], AbstractContextManager[Engine]]] = {"local": _local, "ray": _ray}
