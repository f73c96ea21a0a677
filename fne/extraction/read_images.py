"""Reading image files, ahead of the computation, and only if they are those of the catalog."""

import hashlib
import signal
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from fne.core.dvc import restore_advice
from fne.core.errors import InputError
from fne.extraction.preprocess import Resize
from fne.store.catalog import Image
from fne.store.images import UndecodableError, decode_bytes, read_image_file

# Images that each reading process prefetches: bounded, so that memory does not grow with the data set.
PREFETCHED = 4


class ImageFiles(Dataset[Tensor | str]):
    """The images of a catalog by position: pixels, or an error message.

    It is not raised, because an exception from a DataLoader worker contains the traceback of the worker.
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


def read_ahead(
    files: Dataset[Tensor | str], positions: Iterable[Any], workers: int, pin: bool
) -> Iterator[Tensor]:
    """Yield the pixels (channels, height, width) of images in the order of positions, the keys of `files`."""
    loader = DataLoader(
        files,
        batch_size=None,
        sampler=positions,
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
    """Read one image, which must be the one in the catalog."""
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
