"""Every image of a catalog through the network once, and never again.

Rows are computed batch by batch and kept in the scratch folder as soon as they are
finished. The store is assembled from there, so it does not matter in which order, in
how many runs or by how many processes the rows were computed.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from fne.activations.cost import Effort, announcement, summary
from fne.activations.extractor import Extractor
from fne.activations.reading import ImageFiles, read_ahead
from fne.activations.scratch import Scratch
from fne.core.errors import InputError
from fne.store.catalog import Image
from fne.store.journal import Journal
from fne.store.layout import Layer, plan_shards

# Rows that may wait to be written: bounded, so that memory does not grow behind a slow disk.
UNWRITTEN = 64
# Images computed at once on a GPU where nobody says otherwise; on a CPU, one for each thread.
GPU_BATCH = 16
# Between two looks at what another process is doing.
WAIT_SECONDS = 0.5


@dataclass(frozen=True)
class _Claim:
    """An image to compute, and the locked journal that its row goes to."""

    digest: str
    journal: Journal
    last: bool


def complete(
    scratch: Scratch,
    images: Sequence[Image],
    root: Path,
    extractor: Extractor,
    batch: int,
    workers: int,
    say: Callable[[str], None],
) -> None:
    """Compute the rows of all images that the scratch folder does not have yet.

    Another process that computes the same rows is waited for, journal by journal.

    Args:
        scratch: where finished rows are kept.
        images: the images of the catalog.
        root: the folder of their files.
        extractor: from pixels to rows.
        batch: the number of images computed at once, or 0 for what suits the device.
        workers: the number of processes that read images ahead.
        say: told what is going on.

    Raises:
        InputError: if an image is not the one in the catalog any more, if an activation is
            not finite, or if the disk is full; rows finished before are kept.
    """
    positions = {image.sha256: position for position, image in enumerate(images)}
    pending = set(positions) - set(scratch.rows(positions))
    if not pending:
        return
    batch = batch or (GPU_BATCH if extractor.device.type == "cuda" else torch.get_num_threads())
    done = len(positions) - len(pending)
    say(announcement(extractor, len(positions), done, batch))
    files = ImageFiles(images, root, extractor.resize)
    work = _Work(scratch, positions, pending, files, extractor, batch, workers)
    start, waited_for = time.perf_counter(), list[str]()
    with tqdm(total=len(positions), initial=done, desc="extract", unit="image", disable=None) as progress:
        while pending:
            if not scratch.is_busy(pending):
                work.compute_claimed(progress.update)
                continue
            owners = scratch.owners(pending)
            if owners != waited_for:
                say(f"waiting for process {', '.join(owners)}, which is computing the same images")
                waited_for = owners
            time.sleep(WAIT_SECONDS)
    work.effort.seconds = time.perf_counter() - start
    say(summary(extractor, work.effort))


def assemble(
    scratch: Scratch, images: Sequence[Image], shards: int
) -> Iterator[tuple[int, list[str], np.ndarray]]:
    """Yield the number, ids and rows of each shard of the store, all rows being finished."""
    digests = {image.id: image.sha256 for image in images}
    rows = scratch.rows(digests.values())
    for number, ids in plan_shards(list(digests), shards).items():
        yield number, ids, np.stack([rows[digests[image_id]] for image_id in ids])


def check_finite(row: np.ndarray, image_id: str, layers: Sequence[Layer]) -> None:
    """Refuse NaN and infinity, naming image and layer."""
    if np.isfinite(row).all():
        return
    column = int(np.flatnonzero(~np.isfinite(row))[0])
    ends = np.cumsum([layer.features for layer in layers])
    layer = layers[int(np.searchsorted(ends, column, side="right"))].name
    raise InputError(
        f"image {image_id!r}: layer {layer} gives {row[column]}; check the weights file and the image"
    )


@dataclass
class _Work:
    """The rows still to be computed, and what computes them."""

    scratch: Scratch
    positions: Mapping[str, int]  # of the images, by their digests
    pending: set[str]
    files: ImageFiles
    extractor: Extractor
    batch: int
    workers: int
    effort: Effort = field(default_factory=Effort)

    def compute_claimed(self, progress: Callable[[int], object]) -> None:
        """Compute what no other process is computing; what is settled is taken out of `pending`."""
        claims: deque[_Claim] = deque()
        writing: deque[Future[None]] = deque()
        positions = self._claim(claims, progress)
        pixels = read_ahead(self.files, positions, self.workers, pin=self.extractor.device.type == "cuda")
        with ThreadPoolExecutor(max_workers=1) as writer:
            try:
                for chunk in _batches(self._timed(pixels), self.batch):
                    for row in self.extractor.compute(chunk):
                        image = self.files.images[self.positions[claims[0].digest]]
                        check_finite(row, image.id, self.extractor.layers)
                        writing.append(writer.submit(_write, claims.popleft(), row))
                    started = time.perf_counter()
                    # What is written is looked at at once: after a full disk, nothing more need be computed.
                    while writing and (writing[0].done() or len(writing) > UNWRITTEN):
                        writing.popleft().result()
                    self.effort.output_seconds += time.perf_counter() - started
                    self.effort.images += len(chunk)
                    progress(len(chunk))
                for each in writing:
                    each.result()
            finally:
                wait(writing)
                for claim in claims:
                    claim.journal.unlock()

    def _claim(self, claims: deque[_Claim], progress: Callable[[int], object]) -> Iterator[int]:
        """Lock journals one after the other, as late as possible, and yield the images they lack."""
        for journal, wanted, missing in self.scratch.claims(sorted(self.pending)):
            self.pending.difference_update(wanted)
            progress(len(wanted) - len(missing))
            if not missing:
                journal.unlock()
            for digest in missing:
                claims.append(_Claim(digest, journal, digest == missing[-1]))
                yield self.positions[digest]

    def _timed(self, pixels: Iterator[Tensor]) -> Iterator[Tensor]:
        while True:
            started = time.perf_counter()
            each = next(pixels, None)
            self.effort.input_seconds += time.perf_counter() - started
            if each is None:
                return
            yield each


def _write(claim: _Claim, row: np.ndarray) -> None:
    claim.journal.append(claim.digest, row)
    if claim.last:
        claim.journal.unlock()


def _batches(pixels: Iterator[Tensor], size: int) -> Iterator[list[Tensor]]:
    batch: list[Tensor] = []
    for each in pixels:
        batch.append(each)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch
