"""What extraction costs: arithmetic, time and disk."""

import time
from dataclasses import dataclass

import torch
from torch.utils.flop_counter import FlopCounterMode

from fne.activations.backbones import BACKBONES, build_backbone
from fne.activations.crops import CROPS, SIDE
from fne.activations.extractor import Extractor

# Above this, a shard is slow to write and to share.
SHARD_BYTES = 512 * 2**20


@dataclass
class Effort:
    """What computing took: images, and seconds in all, waiting for input and waiting for output.

    On a cluster also the workers, how often one was started again, and how long all took part, added up.
    """

    images: int = 0
    seconds: float = 0.0
    input_seconds: float = 0.0
    output_seconds: float = 0.0
    workers: int = 0
    restarts: int = 0
    worker_seconds: float = 0.0


def announcement(extractor: Extractor, images: int, done: int, pace: float | None) -> str:
    """Say what is to be done, about how long it will take and how much disk it needs.

    Args:
        extractor: from pixels to rows.
        images: how many there are.
        done: how many of them are finished.
        pace: the seconds that an image takes, if that is known.
    """
    about = "" if pace is None else f", about {in_words((images - done) * pace)}"
    size = images * extractor.features * 4 / 1e6
    return (
        f"{images} images: {done} done, {images - done} to do{about} with algorithm "
        f"'{extractor.kind['algorithm']}' on {extractor.device.type}; disk: {size:,.0f} MB each in the "
        "scratch folder, in the store and, unless it links, in DVC's cache"
    )


def shard_advice(extractor: Extractor, images: int, shards: int) -> str | None:
    """Advise more shards where one would not fit well into memory, twice of which it takes to write it."""
    needed = -(-images * extractor.features * 4 // SHARD_BYTES)
    if needed <= shards:
        return None
    limit = f"{SHARD_BYTES // 2**20} MB"
    return f"Warning: shards would be larger than {limit}; set extract.shards to {needed} or more"


def summary(extractor: Extractor, effort: Effort) -> str:
    """Say what was done and how fast."""
    rate = effort.images / effort.seconds
    return (
        f"{effort.images} images in {in_words(effort.seconds)}: {rate:.2f} images/s, "
        f"{rate * plain_flops(extractor) / 1e9:,.0f} GFLOP/s (counted as if computed plainly), "
        f"{effort.input_seconds / effort.seconds:.1%} of the time waiting for input, "
        f"{effort.output_seconds / effort.seconds:.1%} for output{_per_worker(effort)}"
    )


def crew_in_words(effort: Effort) -> str:
    """Say how many workers there are and how often one was started again; nothing without workers.

    Example:
        >>> crew_in_words(Effort(workers=2, restarts=1))
        '2 workers, 1 restart'
    """
    if not effort.workers:
        return ""
    workers, restarts = (
        f"{number} {what}{'' if number == 1 else 's'}"
        for number, what in ((effort.workers, "worker"), (effort.restarts, "restart"))
    )
    return f"{workers}, {restarts}"


def plain_flops(extractor: Extractor) -> int:
    """Return the floating-point operations that one image takes when every crop is computed plainly."""
    backbone = extractor.kind["backbone"]
    with torch.device("meta"):
        values = CROPS[extractor.kind["crops"]](torch.empty(3, SIDE, SIDE))
        pieces = BACKBONES[backbone].pieces(build_backbone(backbone))
    with FlopCounterMode(display=False) as counter:
        for name in extractor.network.modules:
            values = pieces[name](values)
    return int(counter.get_total_flops())


def in_words(seconds: float) -> str:
    """Return a duration for people to read.

    Example:
        >>> [in_words(each) for each in (9, 200, 10_000)]
        ['9 s', '3.3 min', '2.8 h']
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def seconds_per_image(extractor: Extractor, batch: int) -> float:
    """Return how long an image takes, from a batch of blank ones."""
    blank = [torch.zeros(3, SIDE, SIDE, dtype=torch.uint8)] * batch
    extractor.compute(blank)  # the first time, code is compiled and memory is fetched
    start = time.perf_counter()
    extractor.compute(blank)
    return (time.perf_counter() - start) / batch


def _per_worker(effort: Effort) -> str:
    if not effort.workers:
        return ""
    return f"; {crew_in_words(effort)}, {effort.images / effort.worker_seconds:.2f} images/s per worker"
