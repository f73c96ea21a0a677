"""One extraction: compute every image of a catalog that has no finished row, and assemble the store.

Rows are computed batch by batch, and each is written to the scratch folder as soon as it is
finished. The store is assembled from there. So it does not depend on the order, the number
of runs or the number of processes in which the rows were computed.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch

from fne.core.device import is_gpu
from fne.core.errors import InputError
from fne.core.progress import Progress, progress
from fne.extraction.cost import KEPT_BY_DVC, announcement, format_workers, summary
from fne.extraction.extractor import Extractor
from fne.extraction.finished_rows import LockedJournal, Scratch
from fne.extraction.preprocess import InputFormat
from fne.extraction.ray.driver import open_ray
from fne.extraction.read_images import Engine, EngineConfig, ImageFiles, Job, Log, local_engine, open_local
from fne.extraction.weights import describe_input
from fne.store.catalog import Image
from fne.store.layout import Layer, plan_shards

# Work that takes longer is not started if a remote may have its result.
LONG_SECONDS = 600.0
# Bytes of rows that may wait to be written: bounded, so that a slow disk does not fill the memory, and large
# enough that a fast device does not wait for a disk that pauses.
UNWRITTEN_BYTES = 256 * 2**20
# Images per batch on a GPU with `runtime.batch: 0`; on a CPU, one per thread.
GPU_BATCH = 16
# The images whose first layer is looked at, and the relative deviation below which they look all the same.
WATCHED = 8
HARDLY_DIFFERENT = 0.02
# How often to check whether another process has released its locks.
POLL_SECONDS = 0.5


def complete(
    scratch: Scratch,
    images: Sequence[Image],
    root: Path,
    extractor: Extractor,
    batch: int,
    workers: int,
    log: Log,
    engine: Engine | None = None,
    remote: str | None = None,
    title: str = "extract",
    kept: str = KEPT_BY_DVC,
    watch: Callable[[Progress], None] | None = None,
) -> None:
    """Compute the rows of all images that the scratch folder does not have yet.

    If another process is computing some of the rows, wait for it.

    Args:
        scratch: the cache of finished rows.
        images: the images of the catalog.
        root: the folder of their files.
        extractor: the extractor.
        batch: the number of images per batch, or 0 for the default of the device.
        workers: the number of processes that prefetch images.
        log: called with messages for the user.
        engine: what computes, by default this process.
        remote: a DVC remote that may have the rows; then long work is refused.
        title: what the progress is called.
        kept: where the rows are kept, for the message at the start.
        watch: called once with the progress, for those who show it elsewhere.

    Raises:
        InputError: if the work is long and a remote may have its result, if an image is not the one in
            the catalog any more, if an activation is not finite, or if the disk is full; rows finished
            before are kept.
    """
    positions = {image.sha256: position for position, image in enumerate(images)}
    pending = set(positions) - set(scratch.rows(positions))
    if not pending:
        return
    batch = batch or (GPU_BATCH if is_gpu(extractor.device) else torch.get_num_threads())
    engine = engine or local_engine(extractor.device)
    done = len(positions) - len(pending)
    seconds = engine.time_per_image(extractor, batch)
    log(announcement(extractor, len(positions), done, seconds, kept))
    if remote and (seconds is None or len(pending) * seconds > LONG_SECONDS):
        raise InputError(
            f"dvc.lock names this store, but the cache does not have it and computing it takes long; run "
            f"`dvc fetch extract` to get it from '{remote}', or set runtime.missing_store to compute"
        )
    job = Job(ImageFiles(images, root, extractor.resize), extractor, batch, workers, len(pending), log)
    work = _Work(scratch, positions, pending, engine, job, log)
    start, waited_for = time.perf_counter(), list[str]()
    with progress(title, len(positions), done, "image") as shown:
        if watch:
            watch(shown)
        while pending:
            if not scratch.is_busy(pending):
                work.compute_claimed(shown)
                continue
            owners = scratch.owners(pending)
            if owners != waited_for:
                log(f"waiting for process {', '.join(owners)}, which is computing the same images")
                waited_for = owners
            time.sleep(POLL_SECONDS)
    job.statistics.seconds = time.perf_counter() - start
    log(summary(extractor, job.statistics))


def assemble(
    scratch: Scratch, images: Sequence[Image], shards: int
) -> Iterator[tuple[int, list[str], np.ndarray]]:
    """Yield the number, the ids and the rows of each shard of the store; all rows must be finished."""
    digests = {image.id: image.sha256 for image in images}
    rows = scratch.rows(digests.values())
    for number, ids in plan_shards(list(digests), shards).items():
        yield number, ids, np.stack([rows[digests[image_id]] for image_id in ids])


def check_finite(row: np.ndarray, image_id: str, layers: Sequence[Layer]) -> None:
    """Refuse NaN and infinity.

    Raises:
        InputError: if a value is not finite, with the image and the layer.
    """
    if np.isfinite(row).all():
        return
    column = int(np.flatnonzero(~np.isfinite(row))[0])
    ends = np.cumsum([layer.features for layer in layers])
    layer = layers[int(np.searchsorted(ends, column, side="right"))].name
    raise InputError(
        f"image {image_id!r}: layer {layer} has the value {row[column]}; check the weights file and the image"
    )


def feeding_warning(rows: np.ndarray, layers: Sequence[Layer], wanted: InputFormat) -> str | None:
    """Return a warning if the first layer hardly differs between images, as with a wrongly fed network.

    Weights that expect values of 0..255 and get values around 1 see almost nothing of an image: their
    biases decide. With VGG16's weights and photographs, the median relative deviation of the first layer
    is 0.50, and 0.001 when the same weights, rewritten for 0..255, are fed as torchvision's.

    Args:
        rows: the rows of some images (images, features).
        layers: the layers of a row.
        wanted: how the images were fed.
    """
    first = rows[:, : layers[0].features].astype(np.float64)
    mean = np.abs(first.mean(axis=0))
    alive = mean > 0
    if len(rows) < WATCHED or not alive.any():
        return None
    relative = float(np.median(first.std(axis=0)[alive] / mean[alive]))
    if relative >= HARDLY_DIFFERENT:
        return None
    return (
        f"Warning: layer {layers[0].name} hardly differs between the first {len(rows)} images (relative "
        f"deviation {relative:.4f}, usually above 0.1); the weights may expect another input than "
        f"{describe_input(wanted)}; see extract.input"
    )


@dataclass(frozen=True)
class _Claim:
    """An image to compute, the locked journal of its row, and all rows that the journal still misses."""

    digest: str
    journal: LockedJournal
    missing: set[str]
    hardware: str = ""


@dataclass
class _Work:
    """The rows still to be computed, and the engine that computes them."""

    scratch: Scratch
    positions: Mapping[str, int]  # of the images, by digest
    pending: set[str]
    engine: Engine
    job: Job
    log: Log
    watched: list[np.ndarray] = field(default_factory=list)

    def compute_claimed(self, shown: Progress) -> None:
        """Compute the rows that no other process is computing, and remove them from `pending`."""
        images, statistics = self.job.files.images, self.job.statistics
        claims: dict[int, _Claim] = {}  # by the positions of the images
        writing: deque[Future[None]] = deque()
        with (
            ThreadPoolExecutor(max_workers=1) as writer,
            closing(self.engine.compute(self.job, self._claim(claims, shown))) as computed,
        ):
            try:
                for done in computed:
                    for position, row in zip(done.positions, done.rows, strict=True):
                        check_finite(row, images[position].id, self.job.extractor.layers)
                        self._watch(row)
                    own = [replace(claims.pop(each), hardware=done.hardware) for each in done.positions]
                    writing.append(writer.submit(_write, own, done.rows))
                    started = time.perf_counter()
                    # Check finished writes immediately: if the disk is full, stop computing.
                    while writing and (
                        writing[0].done() or len(writing) * done.rows.nbytes > UNWRITTEN_BYTES
                    ):
                        writing.popleft().result()
                    statistics.output_seconds += time.perf_counter() - started
                    statistics.images += len(done.positions)
                    shown.update(len(done.positions), format_workers(statistics))
                for each in writing:
                    each.result()
            finally:
                wait(writing)
                for journal in {claim.journal for claim in claims.values()}:
                    journal.unlock()

    def _watch(self, row: np.ndarray) -> None:
        """Check the first rows, and warn once if the network seems to get wrong input."""
        if len(self.watched) == WATCHED:
            return
        self.watched.append(row)
        if len(self.watched) == WATCHED:
            extractor = self.job.extractor
            warning = feeding_warning(np.stack(self.watched), extractor.layers, extractor.input)
            if warning:
                self.log(warning)

    def _claim(self, claims: dict[int, _Claim], shown: Progress) -> Iterator[int]:
        """Lock journals one by one, as late as possible, and yield the images without a row."""
        for journal, wanted, unfinished in self.scratch.claims(sorted(self.pending)):
            self.pending.difference_update(wanted)
            shown.update(len(wanted) - len(unfinished))
            if not unfinished:
                journal.unlock()
            missing = set(unfinished)
            claims.update({self.positions[digest]: _Claim(digest, journal, missing) for digest in unfinished})
            yield from (self.positions[digest] for digest in unfinished)


def _write(claims: Sequence[_Claim], rows: np.ndarray) -> None:
    for claim, row in zip(claims, rows, strict=True):
        claim.journal.append(claim.digest, row, claim.hardware)
        claim.missing.discard(claim.digest)
        if not claim.missing:
            claim.journal.unlock()


ENGINES: dict[str, Callable[[EngineConfig, Log], AbstractContextManager[Engine]]] = {
    "local": open_local,
    "ray": open_ray,
}
