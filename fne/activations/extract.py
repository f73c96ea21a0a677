"""Every image of a catalog through the network once, and never again.

Rows are computed batch by batch and kept in the scratch folder as soon as they are
finished. The store is assembled from there, so it does not matter in which order, in
how many runs or by how many processes the rows were computed.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

import numpy as np
import torch
from tqdm import tqdm

from fne.activations.cost import announcement, crew_in_words, summary
from fne.activations.engines import Engine, Job, here
from fne.activations.extractor import Extractor
from fne.activations.reading import ImageFiles
from fne.activations.scratch import Claimed, Scratch
from fne.core.errors import InputError
from fne.store.catalog import Image
from fne.store.layout import Layer, plan_shards

# Rows that may wait to be written: bounded, so that memory does not grow behind a slow disk.
UNWRITTEN = 64
# Images computed at once on a GPU where nobody says otherwise; on a CPU, one for each thread.
GPU_BATCH = 16
# Between two looks at what another process is doing.
WAIT_SECONDS = 0.5


@dataclass(frozen=True)
class _Claim:
    """An image to compute, the locked journal that its row goes to, and what else that one lacks."""

    digest: str
    journal: Claimed
    lacking: set[str]
    processor: str = ""


def complete(
    scratch: Scratch,
    images: Sequence[Image],
    root: Path,
    extractor: Extractor,
    batch: int,
    workers: int,
    say: Callable[[str], None],
    engine: Engine | None = None,
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
        engine: where they are computed, if not in this process.

    Raises:
        InputError: if an image is not the one in the catalog any more, if an activation is
            not finite, or if the disk is full; rows finished before are kept.
    """
    positions = {image.sha256: position for position, image in enumerate(images)}
    pending = set(positions) - set(scratch.rows(positions))
    if not pending:
        return
    batch = batch or (GPU_BATCH if extractor.device.type == "cuda" else torch.get_num_threads())
    engine = engine or here(extractor.device)
    done = len(positions) - len(pending)
    say(announcement(extractor, len(positions), done, engine.pace(extractor, batch)))
    job = Job(ImageFiles(images, root, extractor.resize), extractor, batch, workers, len(pending))
    work = _Work(scratch, positions, pending, engine, job)
    start, waited_for = time.perf_counter(), list[str]()
    with tqdm(total=len(positions), initial=done, desc="extract", unit="image", disable=None) as progress:
        while pending:
            if not scratch.is_busy(pending):
                work.compute_claimed(progress)
                continue
            owners = scratch.owners(pending)
            if owners != waited_for:
                say(f"waiting for process {', '.join(owners)}, which is computing the same images")
                waited_for = owners
            time.sleep(WAIT_SECONDS)
    job.effort.seconds = time.perf_counter() - start
    say(summary(extractor, job.effort))


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
    engine: Engine
    job: Job

    def compute_claimed(self, progress: "tqdm[NoReturn]") -> None:
        """Compute what no other process is computing; what is settled is taken out of `pending`."""
        images, effort = self.job.files.images, self.job.effort
        claims: dict[int, _Claim] = {}  # by the positions of the images
        writing: deque[Future[None]] = deque()
        with (
            ThreadPoolExecutor(max_workers=1) as writer,
            closing(self.engine.compute(self.job, self._claim(claims, progress))) as finished,
        ):
            try:
                for done in finished:
                    for position, row in zip(done.positions, done.rows, strict=True):
                        check_finite(row, images[position].id, self.job.extractor.layers)
                        claim = replace(claims.pop(position), processor=done.processor)
                        writing.append(writer.submit(_write, claim, row))
                    started = time.perf_counter()
                    # What is written is looked at at once: after a full disk, nothing more need be computed.
                    while writing and (writing[0].done() or len(writing) > UNWRITTEN):
                        writing.popleft().result()
                    effort.output_seconds += time.perf_counter() - started
                    effort.images += len(done.positions)
                    progress.set_postfix_str(crew_in_words(effort), refresh=False)
                    progress.update(len(done.positions))
                for each in writing:
                    each.result()
            finally:
                wait(writing)
                for journal in {claim.journal for claim in claims.values()}:
                    journal.unlock()

    def _claim(self, claims: dict[int, _Claim], progress: "tqdm[NoReturn]") -> Iterator[int]:
        """Lock journals one after the other, as late as possible, and yield the images they lack."""
        for journal, wanted, missing in self.scratch.claims(sorted(self.pending)):
            self.pending.difference_update(wanted)
            progress.update(len(wanted) - len(missing))
            if not missing:
                journal.unlock()
            lacking = set(missing)
            claims.update({self.positions[digest]: _Claim(digest, journal, lacking) for digest in missing})
            yield from (self.positions[digest] for digest in missing)


def _write(claim: _Claim, row: np.ndarray) -> None:
    claim.journal.append(claim.digest, row, claim.processor)
    claim.lacking.discard(claim.digest)
    if not claim.lacking:
        claim.journal.unlock()
