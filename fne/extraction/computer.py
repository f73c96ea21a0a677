"""Images on their way through a device: uploaded, computed and returned as rows, all at the same time.

A queue computes batches in the order in which they are submitted. On a GPU, `submit` returns before
anything is computed: images of the next batch are uploaded while the previous batch is computed, and rows
are downloaded while the following batch is computed. On a CPU, `submit` computes.

Every image is computed separately, so the number of images per batch does not change a row. Where the memory
of the device does not suffice, batches are halved.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterator
from itertools import islice
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from fne.core.device import is_gpu, is_out_of_memory
from fne.core.errors import InputError
from fne.extraction.extractor import Extractor

# Batches that a GPU has queued besides the one whose rows are waited for.
AHEAD = 2


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

    Args:
        queue: what computes.
        images: the pixels of each image.
        size: the number of images per batch.
        log: called with a message for the user.

    Raises:
        InputError: if the memory does not suffice for one image.
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
