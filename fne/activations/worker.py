"""What a worker of a cluster does: it reads images of a work unit and computes their rows.

A worker is a process with one model, loaded once. It answers a fault in words instead of
raising it, because an exception would reach the user with the worker's traceback.
"""

import os
import socket
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from fne.activations.engines import Recipe
from fne.activations.extractor import Extractor, build_extractor
from fne.activations.processor import processor_name
from fne.activations.reading import read_pixels
from fne.activations.weights import load_weights
from fne.core.device import prepare_device
from fne.core.errors import InputError
from fne.store.catalog import Image

# What computes and decodes: other versions may give other last bits.
PACKAGES = ("torch", "torchvision", "numba", "pillow")


@dataclass(frozen=True)
class Description:
    """A worker that is ready: its process, and what its rows are made with."""

    process: str
    made_with: dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """Rows of a work unit, what processor computed them, and how long it had nothing to compute before."""

    rows: np.ndarray
    processor: str
    waited: float


class Worker:
    """One model, and threads that read images for it."""

    def __init__(self, recipe: Recipe, root: Path, folder: Path) -> None:
        self._recipe = recipe
        self._root = root
        self._folder = folder
        # All computing is one thread's: torch keeps the number of threads it may use for each thread anew.
        self._computing = ThreadPoolExecutor(1, "compute")
        self._reading = ThreadPoolExecutor(max(1, recipe.runtime.workers), "read")
        self._extractor: Extractor | None = None
        self._idle_since = 0.0

    def wake(self) -> None:
        """Answer that the process runs."""

    def describe(self) -> Description | str:
        """Load the model if that is not done yet, and say what it is."""
        try:
            extractor = self._computing.submit(self._prepare).result()
        except InputError as error:
            return f"node {socket.gethostname()}: {error.message}"
        return Description(f"{socket.gethostname()}:{os.getpid()}", made_with(extractor.kind))

    def compute(self, images: Sequence[Image]) -> Answer | str:
        """Return the rows of images."""
        try:
            # Once it is there, nothing waits for the computing thread, so that images are read meanwhile.
            extractor = self._extractor or self._computing.submit(self._prepare).result()
            read = partial(read_pixels, root=self._root, resize=extractor.resize)
            pixels = list(self._reading.map(read, images))
        except InputError as error:
            return error.message

        def rows() -> Answer:
            started = time.perf_counter()
            waited = started - self._idle_since
            computed = extractor.compute(pixels)
            self._idle_since = time.perf_counter()
            return Answer(computed, processor_name(extractor.device.type), waited)

        return self._computing.submit(rows).result()

    def _prepare(self) -> Extractor:
        if self._extractor is None:
            self._enter()
            recipe = self._recipe
            device = prepare_device(recipe.runtime)
            weights = load_weights(recipe.weights, recipe.choices.backbone)
            self._extractor = build_extractor(recipe.choices, weights, recipe.runtime.algorithm, device)
            self._idle_since = time.perf_counter()
        return self._extractor

    def _enter(self) -> None:
        """Go to the driver's folder, from which relative paths count."""
        if self._root.is_absolute() and self._recipe.weights.is_absolute():
            return
        try:
            os.chdir(self._folder)
        except OSError as error:
            raise InputError(
                f"{self._folder}: cannot be entered ({error.strerror}); every node must see the project's "
                "folder there, or catalog.root and extract.weights must be absolute"
            ) from None


def made_with(kind: dict[str, Any]) -> dict[str, Any]:
    """Return what must be equal in all processes that compute rows of one kind: the kind and the packages."""
    # Builds of one version for different devices differ in what follows the plus sign.
    return kind | {package: version(package).partition("+")[0] for package in PACKAGES}
