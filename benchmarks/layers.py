"""What it costs to look into the layers: `python -m benchmarks.layers` prints seconds and memory.

Rows of all layers are drawn: those of Flickr8k with VGG16's 13 convolutions, or with `--large` those of
100,000 images with the 12,416 features of VGG16. It compares nothing, so `make bench` does not run it. The
goals are 60 s of one core for the first, and 2 GB for the second.
"""

import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
import torch

from fne.probing.images import Words
from fne.probing.measure import measure
from fne.probing.settings import Layers
from fne.store.catalog import Captioned
from fne.store.layout import Layer
from fne.store.rows import Rows, write_rows

CONVOLUTIONS = [64, 64, 128, 128, 256, 256, 256, *[512] * 6]
FULL = [*CONVOLUTIONS, 4096, 4096]
WORDS, LENGTH, SHARD = 3000, 8, 2000


def run(
    folder: Path, training: int, validation: int, sizes: list[int], settings: Layers
) -> tuple[float, float]:
    """Measure drawn layers; return the seconds of the processor and the gigabytes at the peak."""
    rows, records, words = _drawn(folder, training + validation, training, sizes)
    done, peak = threading.Event(), [_memory()]

    def watch() -> None:
        while not done.wait(0.05):
            peak[0] = max(peak[0], _memory())

    watcher = threading.Thread(target=watch)
    watcher.start()
    start = time.process_time()
    measure(rows, records, words, settings)
    seconds = time.process_time() - start
    done.set()
    watcher.join()
    return seconds, peak[0]


def _memory() -> float:
    """Return the gigabytes of this process without mapped files, whose pages the kernel may drop."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0]) / 1e6


def tiny(folder: Path) -> None:
    """Measure three small layers."""
    seconds, memory = run(folder, 40, 10, [4, 4, 8], Layers(min_count=1))
    print(f"{seconds:.1f} s, {memory:.2f} GB")


def _drawn(folder: Path, count: int, training: int, sizes: list[int]) -> tuple[Rows, list[Captioned], Words]:
    random = np.random.default_rng(0)
    ids = [f"{number:06d}.jpg" for number in range(count)]

    def shards() -> Iterator[tuple[int, list[str], np.ndarray]]:
        for number, start in enumerate(range(0, count, SHARD)):
            own = ids[start : start + SHARD]
            yield number, own, random.random((len(own), sum(sizes)), dtype=np.float32).astype(np.float16)

    layers = [Layer(f"layer{number}", size) for number, size in enumerate(sizes)]
    write_rows(folder / "rows", "activations", layers, "float16", shards(), {}, {})
    records = [
        Captioned(each, "train" if number < training else "val", ("x",) * 5, ())
        for number, each in enumerate(ids)
    ]
    captions = (each for record in records for each in record.caption_ids)
    words = dict(zip(captions, random.integers(1, WORDS, (5 * count, LENGTH)), strict=True))
    return Rows.open(folder / "rows"), records, words


@click.command()
@click.option("--large", is_flag=True, help="100,000 images with 12,416 features, about 5 GB on disk.")
def main(large: bool) -> None:
    """Print the seconds of one core and the memory that looking into the layers takes."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        training, sizes = (99_000, FULL) if large else (6_000, CONVOLUTIONS)
        seconds, memory = run(Path(folder), training, 1_000, sizes, Layers())
    print(f"{training + 1_000:,} images, {sum(sizes):,} features: {seconds:.0f} s, {memory:.2f} GB")


if __name__ == "__main__":
    main()
