"""The worker of a Ray cluster: it reads the images of a work unit and computes their rows.

A worker is a process with one model, which is loaded once. It returns an error message instead
of raising the error, because the message of an exception contains the traceback of the worker.
"""

import os
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from fne.core.device import prepare_device
from fne.core.errors import InputError
from fne.core.settings import Runtime
from fne.core.terminal import say
from fne.extraction.computer import compute_rows, open_queue
from fne.extraction.extractor import Extractor, build_extractor
from fne.extraction.finished_rows import hardware_name
from fne.extraction.read_images import read_pixels
from fne.extraction.settings import Extract
from fne.extraction.weights import load_weights
from fne.store.catalog import Image

# The packages that decode and compute: another version may change the last bits.
PACKAGES = ("torch", "torchvision", "numba", "pillow")


@dataclass(frozen=True)
class Description:
    """A worker that is ready: its host and process id, and the fingerprint of its rows."""

    process: str
    fingerprint: dict[str, Any]


@dataclass(frozen=True)
class WorkerResult:
    """The rows of a work unit."""

    rows: np.ndarray  # (images, features)
    hardware: str
    idle_seconds: float  # that the worker waited for the images


class Worker:
    """One model, and threads that read images for it."""

    def __init__(self, settings: Extract, runtime: Runtime, root: Path, folder: Path) -> None:
        self._settings = settings
        self._runtime = runtime
        self._root = root
        self._folder = folder
        # One thread computes everything, because torch's number of threads is a setting per thread.
        self._computing = ThreadPoolExecutor(1, "compute")
        self._reading = ThreadPoolExecutor(max(1, runtime.workers), "read")
        self._extractor: Extractor | None = None
        self._idle_since = 0.0
        self._most = sys.maxsize  # images per batch that fit into memory

    def ping(self) -> None:
        """Return when the process runs."""

    def describe(self) -> Description | str:
        """Load the model if necessary, and return its description or an error message."""
        try:
            extractor = self._computing.submit(self._prepare).result()
        except InputError as error:
            return f"node {socket.gethostname()}: {error.message}"
        return Description(f"{socket.gethostname()}:{os.getpid()}", fingerprint(extractor.kind))

    def compute(self, images: Sequence[Image]) -> WorkerResult | str:
        """Return the rows of images, or an error message."""
        try:
            # Once the model is loaded, images are read without waiting for the computing thread.
            extractor = self._extractor or self._computing.submit(self._prepare).result()
            read = partial(read_pixels, root=self._root, resize=extractor.resize)
            pixels = list(self._reading.map(read, images))
        except InputError as error:
            return error.message

        def rows() -> WorkerResult:
            idle_seconds = time.perf_counter() - self._idle_since
            computed = np.concatenate(list(self._rows(extractor, pixels)))
            self._idle_since = time.perf_counter()
            return WorkerResult(computed, hardware_name(extractor.device.type), idle_seconds)

        try:
            return self._computing.submit(rows).result()
        except InputError as error:
            return error.message

    def _rows(self, extractor: Extractor, pixels: list[Tensor]) -> Iterator[np.ndarray]:
        """Yield rows; batches that were halved because memory ran out stay so in later work units."""
        size = min(self._most, len(pixels))
        last = yield from compute_rows(open_queue(extractor), iter(pixels), size, say)
        if last < size:
            self._most = last

    def _prepare(self) -> Extractor:
        if self._extractor is None:
            self._change_folder()
            settings, runtime = self._settings, self._runtime
            device = prepare_device(runtime)
            weights = load_weights(Path(settings.weights), settings.backbone, settings.input)
            self._extractor = build_extractor(settings, weights, runtime.algorithm, device)
            self._idle_since = time.perf_counter()
        return self._extractor

    def _change_folder(self) -> None:
        """Change to the folder of the driver, to which relative paths refer."""
        if self._root.is_absolute() and Path(self._settings.weights).is_absolute():
            return
        try:
            os.chdir(self._folder)
        except OSError as error:
            raise InputError(
                f"{self._folder}: cannot be opened ({error.strerror}); make the project's folder available "
                "there on every node, or use absolute paths for catalog.root and extract.weights"
            ) from None


def fingerprint(kind: dict[str, Any]) -> dict[str, Any]:
    """Return what must be equal in all processes that compute rows of one kind: kind and package versions."""
    # Builds of one version for different devices differ only after the plus sign.
    return kind | {package: version(package).partition("+")[0] for package in PACKAGES}
