"""Engines, which compute the rows of images, and the reading of image files.

An engine runs in this process or on the workers of a Ray cluster. Every entry of `run.ENGINES` is
a context manager that opens one, called with a configuration and a log. The engine's
`compute(job, positions)` yields the rows of the images of a job in any order. It consumes positions
as late as possible, because consuming one locks it against other processes.
"""

import hashlib
import signal
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from fne.core.device import is_gpu, prepare_device
from fne.core.dvc import restore_advice
from fne.core.errors import InputError
from fne.core.params import Runtime
from fne.core.terminal import say
from fne.extraction.cost import RunStatistics, time_per_image
from fne.extraction.computer import DeviceQueue, compute_rows, open_queue
from fne.extraction.extractor import Extractor, ExtractorSettings
from fne.extraction.finished_rows import hardware_name
from fne.extraction.preprocess import Resize
from fne.extraction.weights import AUTO
from fne.store.catalog import Image
from fne.store.images import UndecodableError, decode_bytes, read_image_file

# Images that each reading process prefetches: bounded, so that memory does not grow with the data set.
PREFETCHED = 4

Log = Callable[[str], None]


class ImageFiles(Dataset[Tensor | str]):
    """The images of a catalog by position: pixels, or an error message.

    The error is returned instead of raised, because the message of an exception from a
    DataLoader worker contains the traceback of the worker.
    """

    def __init__(self, images: Sequence[Image], root: Path, resize: Resize) -> None:
        self.images = images
        self.root = root
        self._resize = resize

    def __getitem__(self, position: int) -> Tensor | str:
        try:
            return read_pixels(self.images[position], self.root, self._resize)
        except InputError as error:
            return error.message


@dataclass(frozen=True)
class EngineConfig:
    """What an engine needs to build an extractor, in this process or on a worker.

    Attributes:
        settings: the settings that determine the values of a row.
        weights: the weights file.
        runtime: the settings of speed and resources.
        input: how to feed images, `extract.input` of `params.yaml`.
    """

    settings: ExtractorSettings
    weights: Path
    runtime: Runtime
    input: str = AUTO


@dataclass
class Job:
    """Images to compute.

    Attributes:
        files: the images of the catalog.
        extractor: the extractor.
        batch: the number of images per batch.
        workers: the number of processes that prefetch images.
        todo: the number of images to compute, at most.
        log: called with messages for the user.
        statistics: measurements, which the engine updates.
    """

    files: ImageFiles
    extractor: Extractor
    batch: int
    workers: int
    todo: int
    log: Log = say
    statistics: RunStatistics = field(default_factory=RunStatistics)


@dataclass(frozen=True)
class ComputedRows:
    """Rows (images, features), the positions of their images, and the hardware that computed them."""

    positions: list[int]
    rows: np.ndarray
    hardware: str


@dataclass(frozen=True)
class Engine:
    """A way to compute the rows of many images.

    Attributes:
        device: the device that computes.
        remote: whether other processes compute, so that this one needs no weights.
        compute: from positions to computed rows.
        time_per_image: the estimated seconds per image, or None if they cannot be estimated.
    """

    device: torch.device
    remote: bool
    compute: Callable[[Job, Iterator[int]], Generator[ComputedRows, None, None]]
    time_per_image: Callable[[Extractor, int], float | None]


@contextmanager
def open_local(config: EngineConfig, log: Log) -> Iterator[Engine]:
    """Yield the engine that computes in this process."""
    yield local_engine(prepare_device(config.runtime))


def local_engine(device: torch.device) -> Engine:
    """Return the engine that computes in this process, on a prepared device."""
    return Engine(device, False, compute_locally, time_per_image)


def compute_locally(
    job: Job, positions: Iterator[int], queue: DeviceQueue | None = None
) -> Generator[ComputedRows, None, None]:
    """Compute rows in this process; other processes only prefetch images.

    Args:
        job: the images to compute.
        positions: their positions.
        queue: what computes, by default the device of the extractor.
    """
    reading: deque[int] = deque()

    def recorded() -> Iterator[int]:
        for position in positions:
            reading.append(position)
            yield position

    device = job.extractor.device
    pixels = read_ahead(job.files, recorded(), job.workers, pin=is_gpu(device))
    hardware = hardware_name(device.type)
    queue = queue or open_queue(job.extractor)
    for rows in compute_rows(queue, _timed(pixels, job.statistics), job.batch, job.log):
        yield ComputedRows([reading.popleft() for _ in rows], rows, hardware)


def read_ahead(
    files: Dataset[Tensor | str], positions: Iterable[Any], workers: int, pin: bool
) -> Iterator[Tensor]:
    """Yield the pixels (channels, height, width) of images in the order of `positions`, the keys of `files`.

    Raises:
        InputError: at the first image that cannot be read.
    """
    loader = DataLoader(
        files,
        batch_size=None,
        sampler=_LazySampler(positions),
        num_workers=workers,
        prefetch_factor=PREFETCHED if workers else None,
        pin_memory=pin,
        worker_init_fn=_leave_sigterm_to_parent,
        # Its values are not used, but without a generator the loader would advance the global one.
        generator=torch.Generator(),
    )
    try:
        for pixels in _start(loader):
            if isinstance(pixels, str):
                raise InputError(pixels)
            yield pixels
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        raise InputError(
            "a process that reads images was killed, possibly because memory ran out; finished rows are "
            "kept; lower runtime.workers and run again"
        ) from None


def read_pixels(image: Image, root: Path, resize: Resize) -> Tensor:
    """Read one image of the catalog.

    Raises:
        InputError: if the file cannot be read or decoded, or is not the one in the catalog.
    """
    path = root / image.path
    try:
        content = read_image_file(path)
    except UndecodableError as error:
        raise InputError(f"{path}: {error}; {restore_advice(path)}") from None
    found = hashlib.sha256(content).hexdigest()
    if found != image.sha256:
        raise InputError(
            f"{path}: has changed since the catalog was made: expected SHA-256 {image.sha256[:12]}…, "
            f"found {found[:12]}…; {restore_advice(path)}"
        )
    try:
        return resize(decode_bytes(content))
    except UndecodableError as error:
        raise InputError(f"{path}: {error}; {restore_advice(path)}") from None


def _start(loader: DataLoader[Tensor | str]) -> Iterator[Tensor | str]:
    """Start the reading processes; a SIGTERM that arrives before they ignore it waits."""
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        return iter(loader)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _leave_sigterm_to_parent(worker: int) -> None:
    """Ignore SIGTERM in a reading process: the parent saves its state first, and then ends this process.

    Schedulers send the signal to all processes of a job at once. A reading process that ended by itself would
    raise an exception at any place in the parent.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


class _LazySampler(Sampler[Any]):
    """Positions in the given order, consumed as late as possible."""

    def __init__(self, positions: Iterable[Any]) -> None:
        self._positions = positions

    def __iter__(self) -> Iterator[Any]:
        return iter(self._positions)


def _timed(pixels: Iterator[Tensor], statistics: RunStatistics) -> Iterator[Tensor]:
    while True:
        started = time.perf_counter()
        each = next(pixels, None)
        statistics.input_seconds += time.perf_counter() - started
        if each is None:
            return
        yield each
