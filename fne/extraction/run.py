"""An extraction, from images to rows: `extract` is all of it, in six steps.

Each row is written to the scratch folder as soon as it is finished. The store is assembled from there, so it
does not depend on the order, the number of runs or the number of processes that computed the rows.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

import numpy as np

from fne.core.errors import InputError
from fne.core.progress import Progress, progress
from fne.core.settings import Runtime
from fne.core.terminal import say
from fne.extraction.computer import ComputedRows, Computer, Job, Log, open_local
from fne.extraction.cost import KEPT_BY_DVC, RunStatistics, announcement, format_workers, summary
from fne.extraction.extractor import Extractor
from fne.extraction.finished_rows import LockedJournal, Scratch
from fne.extraction.ray.driver import open_ray
from fne.extraction.read_images import ImageFiles
from fne.extraction.settings import Extract, InputFormat
from fne.extraction.weights import describe_input
from fne.store.layout import Layer, plan_shards

# Work that takes longer is not started if a remote may have its result.
LONG_SECONDS = 600.0
# Bytes of rows that may wait to be written: bounded, so that a slow disk does not fill the memory, and large
# enough that a fast device does not wait for a disk that pauses.
UNWRITTEN_BYTES = 256 * 2**20
# The images whose first layer is looked at, and the relative deviation below which they look all the same.
WATCHED = 8
HARDLY_DIFFERENT = 0.02
# How often to check whether another process has released its locks.
POLL_SECONDS = 0.5

# The number, the ids and the rows of a shard of the store.
Shard = tuple[int, list[str], np.ndarray]


@dataclass(frozen=True)
class Report:
    """How an extraction talks to the user."""

    log: Log = say
    title: str = "extract"  # what the progress is called
    kept: str = KEPT_BY_DVC  # where the rows are kept, for the message at the start
    watch: Callable[[Progress], None] | None = None  # called once, by those who show the progress elsewhere


def extract(
    files: ImageFiles,
    extractor: Extractor,
    scratch: Scratch,
    computer: Computer,
    report: Report,
    remote: str | None = None,
    shards: int = 1,
) -> Iterator[Shard]:
    """Compute the rows of all images that the scratch folder does not have yet; return the shards of a store.

    If another process is computing some of the rows, wait for it. Shards are read when they are asked for.
    Rows that were finished before an error are kept.
    """
    # 1. Which rows are missing?
    digests = {image.id: image.sha256 for image in files.images}
    positions = {image.sha256: position for position, image in enumerate(files.images)}
    missing = set(positions) - set(scratch.rows(positions))
    if not missing:
        return assemble(scratch, digests, shards)
    done = len(positions) - len(missing)
    seconds = computer.time_per_image(extractor)
    report.log(announcement(extractor, len(positions), done, seconds, report.kept))
    if remote and (seconds is None or len(missing) * seconds > LONG_SECONDS):
        raise InputError(
            f"dvc.lock names this store, but the cache does not have it and computing it takes long; run "
            f"`dvc fetch extract` to get it from '{remote}', or set runtime.missing_store to compute"
        )
    job = Job(files, extractor, len(missing), report.log)
    start, waited_for, watched = time.perf_counter(), list[str](), list[np.ndarray]()
    with progress(report.title, len(positions), done, "image") as shown:
        if report.watch:
            report.watch(shown)
        while missing:
            waited_for = wait_for_others(scratch, missing, waited_for, report.log)
            with computer.start(job), Claims(scratch, missing) as claims, _writer(job.statistics) as keep:
                while claims.left or computer.busy:
                    # 2. Claim images, no more than are needed now: other processes may take the others.
                    claimed, found = claims.take(computer.room)
                    missing.difference_update(claimed, found)
                    shown.update(len(found))
                    # 3. Decode them, ahead of the computation.
                    computer.submit([positions[digest] for digest in claimed])
                    # 4. Compute rows.
                    for computed in computer.finished():
                        for position, row in zip(computed.positions, computed.rows, strict=True):
                            check_finite(row, files.images[position].id, extractor.layers)
                            _watch(row, watched, job)
                        # 5. Keep them.
                        found = [files.images[position].sha256 for position in computed.positions]
                        keep(claims.pop(found), computed)
                        shown.update(len(found), format_workers(job.statistics))
    job.statistics.seconds = time.perf_counter() - start
    report.log(summary(extractor, job.statistics))
    # 6. Assemble the store from them.
    return assemble(scratch, digests, shards)


def assemble(scratch: Scratch, digests: Mapping[str, str], shards: int) -> Iterator[Shard]:
    """Yield the shards of the store, given the digest of each id's source; all rows must be finished."""
    rows = scratch.rows(digests.values())
    for number, ids in plan_shards(list(digests), shards).items():
        yield number, ids, np.stack([rows[digests[image_id]] for image_id in ids])


def check_finite(row: np.ndarray, row_id: str, layers: Sequence[Layer], what: str = "image") -> None:
    """Refuse NaN and infinity, with the image or caption and the layer."""
    if np.isfinite(row).all():
        return
    column = int(np.flatnonzero(~np.isfinite(row))[0])
    ends = np.cumsum([layer.features for layer in layers])
    layer = layers[int(np.searchsorted(ends, column, side="right"))].name
    raise InputError(
        f"{what} {row_id!r}: layer {layer} has the value {row[column]}; check the weights file and the {what}"
    )


def feeding_warning(rows: np.ndarray, layers: Sequence[Layer], wanted: InputFormat) -> str | None:
    """Return a warning if the first layer hardly differs between images, as with a wrongly fed network.

    Weights that expect values of 0..255 and get values around 1 see almost nothing of an image: their
    biases decide. With VGG16's weights and photographs, the median relative deviation of the first layer
    is 0.50, and 0.001 when the same weights, rewritten for 0..255, are fed as torchvision's.
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


class Claims:
    """The images that this process computes; their journals are locked until their rows are written."""

    def __init__(self, scratch: Scratch, missing: set[str]) -> None:
        self._scratch = scratch
        self._untried = deque(scratch.by_journal(sorted(missing)))
        self._untaken: deque[str] = deque()
        self._claims: dict[str, _Claim] = {}  # without a row, by digest
        self._locked: dict[LockedJournal, set[str]] = {}  # with the rows that were not written

    def __enter__(self) -> "Claims":
        return self

    def __exit__(self, *error: object) -> None:
        """Release the locks of rows that were not written, because of an error."""
        for journal in (journal for journal, missing in self._locked.items() if missing):
            journal.unlock()

    @property
    def left(self) -> bool:
        """Whether there may be more images to take."""
        return bool(self._untried or self._untaken)

    def take(self, count: int) -> tuple[list[str], list[str]]:
        """Return `count` images to compute, or all that are left, and images that were finished meanwhile.

        A journal is locked when its first image is needed; those that others have locked are skipped.
        """
        finished = list[str]()
        while self._untried and len(self._untaken) < count:
            wanted = self._untried.popleft()
            journal = self._scratch.claim(wanted)
            if journal is None:
                continue
            missing = journal.missing(wanted)
            finished += [digest for digest in wanted if digest not in missing]
            if not missing:
                journal.unlock()
            self._untaken.extend(missing)
            self._locked[journal] = set(missing)
            self._claims |= {digest: _Claim(digest, journal, self._locked[journal]) for digest in missing}
        return [self._untaken.popleft() for _ in range(min(count, len(self._untaken)))], finished

    def pop(self, digests: Sequence[str]) -> list[_Claim]:
        """Return the claims of images whose rows were computed."""
        return [self._claims.pop(digest) for digest in digests]


def wait_for_others(scratch: Scratch, missing: set[str], told: list[str], log: Log) -> list[str]:
    """Wait until a missing row is free; return the processes that were waited for, as the user was told."""
    while scratch.is_busy(missing):
        owners = scratch.owners(missing)
        if owners != told:
            log(f"waiting for process {', '.join(owners)}, which is computing the same rows")
            told = owners
        time.sleep(POLL_SECONDS)
    return told


def _watch(row: np.ndarray, watched: list[np.ndarray], job: Job) -> None:
    """Look at the first rows, and warn once if the network seems to get wrong input."""
    if len(watched) == WATCHED:
        return
    watched.append(row)
    if len(watched) == WATCHED:
        warning = feeding_warning(np.stack(watched), job.extractor.layers, job.extractor.input)
        if warning:
            job.log(warning)


@contextmanager
def _writer(statistics: RunStatistics) -> Iterator[Callable[[list[_Claim], ComputedRows], None]]:
    """Yield a function that writes rows on another thread, so that the computation does not wait for it."""
    writing: deque[Future[None]] = deque()

    def keep(claims: list[_Claim], computed: ComputedRows) -> None:
        rows = computed.rows
        writing.append(writer.submit(write_claimed, claims, rows, computed.hardware))
        started = time.perf_counter()
        # Check finished writes immediately: if the disk is full, stop computing.
        while writing and (writing[0].done() or len(writing) * rows.nbytes > UNWRITTEN_BYTES):
            writing.popleft().result()
        statistics.output_seconds += time.perf_counter() - started
        statistics.images += len(rows)

    with ThreadPoolExecutor(max_workers=1) as writer:
        yield keep
        for each in writing:
            each.result()


def write_claimed(claims: Sequence[_Claim], rows: np.ndarray, hardware: str = "") -> None:
    """Keep rows, computed by this hardware if no other is named; unlock journals that miss no more."""
    for claim, row in zip(claims, rows, strict=True):
        claim.journal.append(claim.digest, row, hardware)
        claim.missing.discard(claim.digest)
        if not claim.missing:
            claim.journal.unlock()


COMPUTERS: dict[str, Callable[[Extract, Runtime, Log], AbstractContextManager[Computer]]] = {
    "local": open_local,
    "ray": open_ray,
}
