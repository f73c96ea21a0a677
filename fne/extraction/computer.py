"""What computes the rows of claimed images: the protocol `Computer`, and this process as one of the two.

The other one is a Ray cluster (`fne.extraction.ray`). Every entry of `run.COMPUTERS` opens one.

In this process, images are read ahead by other processes and pass through a device queue in order. On a GPU,
`submit` returns before anything is computed, so uploads, computation and downloads overlap. On a CPU,
`submit` computes. Every image is computed separately, so the number of images per batch does not change a
row. Where the memory of the device does not suffice, batches are halved.
"""

import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from fne.core.device import is_gpu, is_out_of_memory, prepare_device
from fne.core.errors import InputError
from fne.core.settings import Runtime
from fne.core.terminal import say
from fne.extraction.cost import RunStatistics, time_per_image
from fne.extraction.extractor import Extractor
from fne.extraction.finished_rows import hardware_name
from fne.extraction.read_images import PREFETCHED, ImageFiles, read_ahead
from fne.extraction.settings import Extract

# Batches that a GPU has queued besides the one whose rows are waited for.
AHEAD = 2
# Images per batch on a GPU with `runtime.batch: 0`; on a CPU, one per thread.
GPU_BATCH = 16

Log = Callable[[str], None]


@dataclass
class Job:
    """Images to compute, `todo` of them at most; the computer updates the statistics."""

    files: ImageFiles
    extractor: Extractor
    todo: int
    log: Log = say
    statistics: RunStatistics = field(default_factory=RunStatistics)


@dataclass(frozen=True)
class ComputedRows:
    """Rows (images, features), the positions of their images, and the hardware that computed them."""

    positions: list[int]
    rows: np.ndarray
    hardware: str


class Computer(Protocol):
    """Computes the rows of images, which it gets while it works: submit as many as it has room for, if any.

    If `remote`, other processes compute, so that this one needs no weights.
    """

    device: torch.device
    remote: bool

    def time_per_image(self, extractor: Extractor) -> float | None:
        """Return the estimated seconds per image, or None if they cannot be estimated."""

    def start(self, job: Job) -> AbstractContextManager[None]:
        """Be ready for the images of a job; what follows needs that."""

    @property
    def room(self) -> int:
        """How many more images to submit now, so that it does not wait for images."""

    @property
    def busy(self) -> bool:
        """Whether submitted images have no rows yet."""

    def submit(self, positions: Sequence[int]) -> None:
        """Read and compute images, given their positions in the job's files."""

    def finished(self) -> Iterator[ComputedRows]:
        """Wait a while, and yield the rows that are finished, of images in any order."""


@contextmanager
def open_local(settings: Extract, runtime: Runtime, log: Log) -> Iterator[Computer]:
    """Yield the computer that is this process."""
    yield LocalComputer(prepare_device(runtime), runtime.batch, runtime.workers)


class LocalComputer:
    """This process, on a prepared device; `workers` other processes read images ahead."""

    remote = False

    def __init__(self, device: torch.device, batch: int = 0, workers: int = 0) -> None:
        self.device = device
        self._batch = batch or default_batch(device)
        self._workers = workers
        self._most = 0  # images that are submitted and not being read yet
        self._submitted: deque[int] = deque()
        self._reading: deque[int] = deque()  # or being computed
        self._rows: Iterator[np.ndarray] = iter(())

    def time_per_image(self, extractor: Extractor) -> float | None:
        """Measure blank images."""
        return time_per_image(extractor, self._batch)

    @contextmanager
    def start(self, job: Job) -> Iterator[None]:
        """Start to read as soon as images are submitted."""
        queue = self.open_queue(job.extractor)
        self._most = self._workers * PREFETCHED + (queue.ahead + 1) * self._batch
        self._submitted, self._reading = deque(), deque()
        pixels = read_ahead(job.files, self._positions(), self._workers, pin=is_gpu(self.device))
        with closing(compute_rows(queue, _timed(pixels, job.statistics), self._batch, job.log)) as self._rows:
            yield

    @property
    def room(self) -> int:
        """What the reading processes and the queue may take before the next rows are finished."""
        return self._most - len(self._submitted)

    @property
    def busy(self) -> bool:
        """Whether submitted images have no rows yet."""
        return bool(self._submitted or self._reading)

    def submit(self, positions: Sequence[int]) -> None:
        """Let the reading processes read images."""
        self._submitted.extend(positions)

    def finished(self) -> Iterator[ComputedRows]:
        """Yield the rows of the next batch."""
        if self.busy:
            rows = next(self._rows)
            positions = [self._reading.popleft() for _ in rows]
            yield ComputedRows(positions, rows, hardware_name(self.device.type))

    def open_queue(self, extractor: Extractor) -> "DeviceQueue":
        """Return the queue of the device."""
        return open_queue(extractor)

    def _positions(self) -> Iterator[int]:
        while self._submitted:
            self._reading.append(self._submitted.popleft())
            yield self._reading[-1]


def default_batch(device: torch.device) -> int:
    """Return the images per batch with `runtime.batch: 0`."""
    return GPU_BATCH if is_gpu(device) else torch.get_num_threads()


def _timed(pixels: Iterator[Tensor], statistics: RunStatistics) -> Iterator[Tensor]:
    while True:
        started = time.perf_counter()
        each = next(pixels, None)
        statistics.input_seconds += time.perf_counter() - started
        if each is None:
            return
        yield each


class DeviceQueue(Protocol):
    """Computes batches of images in the order in which they are submitted."""

    @property
    def ahead(self) -> int:
        """How many batches to submit before the first result is waited for."""

    def submit(self, pixels: list[Tensor]) -> Callable[[], np.ndarray]:
        """Queue a batch; return a function that waits for its rows."""

    def release_memory(self) -> None:
        """Return memory that is reserved and not used."""


class HostQueue:
    """A CPU, which computes at once."""

    ahead = 0

    def __init__(self, extractor: Extractor) -> None:
        self._extractor = extractor

    def submit(self, pixels: list[Tensor]) -> Callable[[], np.ndarray]:
        """Compute a batch."""
        rows = self._extractor.compute(pixels)
        return lambda: rows

    def release_memory(self) -> None:
        """A CPU reserves none."""


class StreamQueue:
    """A GPU with a stream for uploads, one for computing and one for downloads."""

    ahead = AHEAD

    def __init__(self, extractor: Extractor) -> None:
        self._extractor = extractor
        self._uploads = torch.cuda.Stream(extractor.device)  # type: ignore[no-untyped-call]
        self._downloads = torch.cuda.Stream(extractor.device)  # type: ignore[no-untyped-call]

    def submit(self, pixels: list[Tensor]) -> Callable[[], np.ndarray]:
        """Queue uploads, the computation and the download of a batch of pinned images."""
        device = self._extractor.device
        computing = torch.cuda.current_stream(device)
        with torch.cuda.stream(self._uploads):
            uploaded = [each.to(device, non_blocking=True) for each in pixels]
        computing.wait_stream(self._uploads)
        rows = self._extractor.start(uploaded)
        for each in uploaded:
            each.record_stream(computing)  # its memory is not used again before the computation is over
        self._downloads.wait_stream(computing)
        with torch.cuda.stream(self._downloads):
            returned = torch.empty(rows.shape, dtype=rows.dtype, pin_memory=True)
            returned.copy_(rows, non_blocking=True)
            finished = self._downloads.record_event()
        rows.record_stream(self._downloads)

        def result() -> np.ndarray:
            finished.synchronize()
            return returned.numpy()

        return result

    def release_memory(self) -> None:
        """Return the memory that torch keeps for later."""
        torch.cuda.empty_cache()


def open_queue(extractor: Extractor) -> DeviceQueue:
    """Return the queue of the device of an extractor."""
    return StreamQueue(extractor) if is_gpu(extractor.device) else HostQueue(extractor)


def compute_rows(
    queue: DeviceQueue, images: Iterator[Tensor], size: int, log: Callable[[str], None]
) -> Generator[np.ndarray, None, int]:
    """Yield the rows of images in their order, some images at a time; return the last size of batches.

    When memory runs out, what is queued is finished first. If a batch does not fit alone either, it is
    halved, and so are all batches after it. This is reported once.
    """
    queued: deque[Callable[[], np.ndarray]] = deque()
    wanted, told = size, False
    todo: list[list[Tensor]] = []
    while todo or (batch := list(islice(images, size))):
        batch = todo.pop(0) if todo else batch
        result = _submit(queue, batch)
        if result is not None:
            if size < wanted and not told:
                log(
                    f"out of memory with {wanted} images per batch; going on with {size}, which gives the "
                    f"same rows; set runtime.batch to {size} to start with it"
                )
                told = True
            queued.append(result)
            while len(queued) > queue.ahead:
                yield queued.popleft()()
            continue
        alone = not queued
        while queued:
            yield queued.popleft()()
        queue.release_memory()
        if not alone:
            todo.insert(0, batch)
        elif len(batch) > 1:
            size = (len(batch) + 1) // 2
            todo[:0] = [batch[:size], batch[size:]]
        else:
            raise InputError(
                "out of memory with one image per batch; stop other programs that use this device, or set "
                "runtime.device to cpu"
            )
    while queued:
        yield queued.popleft()()
    return size


def _submit(queue: DeviceQueue, batch: list[Tensor]) -> Callable[[], np.ndarray] | None:
    """Submit a batch; return None if memory runs out, without the error, which would hold some of it."""
    try:
        return queue.submit(batch)
    except (RuntimeError, MemoryError) as error:
        if is_out_of_memory(error):
            return None
        raise
