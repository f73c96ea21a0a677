"""The cost of an extraction in operations, time, memory and disk space, and the messages that report it."""

import time
from dataclasses import dataclass

import torch

from fne.core.device import is_out_of_memory, peak_memory
from fne.core.terminal import format_bytes, format_time
from fne.extraction.extractor import Extractor
from fne.extraction.networks import build_backbone, find_backbone
from fne.extraction.preprocess import CROPS

# Larger shards are slow to write and to transfer.
SHARD_BYTES = 512 * 2**20
# Where rows are kept, as messages say it.
KEPT_BY_DVC = "each for the scratch folder, the store and, unless it uses links, DVC's cache"


@dataclass
class RunStatistics:
    """Measurements of one run."""

    images: int = 0
    seconds: float = 0.0
    input_seconds: float = 0.0  # that the computation waited for images
    output_seconds: float = 0.0  # that it waited for written rows
    workers: int = 0  # Ray workers; 0 without Ray
    restarts: int = 0  # how often a worker was restarted
    worker_seconds: float = 0.0  # that workers were available, summed over all of them


def announcement(
    extractor: Extractor, images: int, done: int, seconds_per_image: float | None, kept: str = KEPT_BY_DVC
) -> str:
    """Return a message with the remaining work, its estimated duration, memory and disk space.

    The memory is the most that this process has used so far, so the time per image is measured before.
    """
    todo = images - done
    about = memory = ""
    if seconds_per_image is not None:
        about = f", about {format_time(todo * seconds_per_image)}"
        memory = f" memory: {format_bytes(peak_memory(extractor.device))};"
    size = images * extractor.features * 4 / 1e6
    return (
        f"{images} images: {done} done, {todo} to do{about} with algorithm "
        f"'{extractor.kind['algorithm']}' on {extractor.device.type};{memory} disk: {size:,.0f} MB {kept}"
    )


def shard_advice(extractor: Extractor, images: int, shards: int) -> str | None:
    """Return a warning if shards are too large, or None; writing a shard takes twice its size of memory."""
    needed = -(-images * extractor.features * 4 // SHARD_BYTES)
    if needed <= shards:
        return None
    limit = f"{SHARD_BYTES // 2**20} MB"
    return f"Warning: shards would be larger than {limit}; set extract.shards to {needed} or more"


def summary(extractor: Extractor, statistics: RunStatistics) -> str:
    """Return a message with the number of computed images and the speed."""
    rate = statistics.images / statistics.seconds
    return (
        f"{statistics.images} images in {format_time(statistics.seconds)}: {rate:.2f} images/s, "
        f"{rate * plain_flops(extractor) / 1e9:,.0f} GFLOP/s (operations of algorithm 'plain'), "
        f"{statistics.input_seconds / statistics.seconds:.1%} of the time waiting for input, "
        f"{statistics.output_seconds / statistics.seconds:.1%} for output{_per_worker(statistics)}"
    )


def format_workers(statistics: RunStatistics) -> str:
    """Return the number of workers and restarts as text, which is empty without Ray.

    Example:
        >>> format_workers(RunStatistics(workers=2, restarts=1))
        '2 workers, 1 restart'
    """
    if not statistics.workers:
        return ""
    workers, restarts = (
        f"{number} {what}{'' if number == 1 else 's'}"
        for number, what in ((statistics.workers, "worker"), (statistics.restarts, "restart"))
    )
    return f"{workers}, {restarts}"


def plain_flops(extractor: Extractor) -> int:
    """Return the floating-point operations per image of the algorithm `plain`."""
    from torch.utils.flop_counter import FlopCounterMode  # triton: slow to import

    backbone = extractor.kind["backbone"]
    with torch.device("meta"):
        size, side = extractor.input.size, extractor.network.side
        values = CROPS[extractor.kind["crops"]](torch.empty(3, size, size), side)
        modules = find_backbone(backbone).modules(build_backbone(backbone))
    with FlopCounterMode(display=False) as counter:
        for name in extractor.network.modules:
            values = modules[name](values)
    return int(counter.get_total_flops())


def time_per_image(extractor: Extractor, batch: int) -> float:
    """Return the seconds per image, measured with a batch of blank images, fewer if memory runs out."""
    size = extractor.input.size
    blank = [torch.zeros(3, size, size, dtype=torch.uint8)] * batch
    try:
        extractor.compute(blank)  # warm-up: compiles code and allocates memory
        start = time.perf_counter()
        extractor.compute(blank)
        return (time.perf_counter() - start) / batch
    except (RuntimeError, MemoryError) as error:
        if batch == 1 or not is_out_of_memory(error):
            raise
    return time_per_image(extractor, batch // 2)


def _per_worker(statistics: RunStatistics) -> str:
    if not statistics.workers:
        return ""
    rate = statistics.images / statistics.worker_seconds
    return f"; {format_workers(statistics)}, {rate:.2f} images/s per worker"
