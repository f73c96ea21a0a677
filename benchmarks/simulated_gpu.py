"""Whether an extraction keeps a GPU busy, shown with one that is simulated.

`python -m benchmarks.simulated_gpu` extracts with a device that takes a given time per image and computes
nothing. Everything else is real: the queue of batches, the processes that read ahead, claims, checks, and the
writer of the scratch folder. It prints the fraction of the time in which the device was busy, from the first
batch to the last row.

Images are files that are decoded, or pixels that are in memory already: the difference is what decoding
costs. Where files leave the device idle and pixels do not, decoding is the limit.
"""

import hashlib
import io
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click
import numpy as np
import torch
from PIL import Image as Picture
from torch import Tensor

from fne.extraction.computer import AHEAD, GPU_BATCH, DeviceQueue, LocalComputer
from fne.extraction.extractor import Extractor
from fne.extraction.finished_rows import Scratch
from fne.extraction.forward_pass import Network
from fne.extraction.layers import Tap
from fne.extraction.preprocess import squash
from fne.extraction.read_images import ImageFiles
from fne.extraction.run import Report, extract
from fne.extraction.settings import SIDE
from fne.store.catalog import Image
from fne.store.layout import Layer

RATES = (100, 500, 2000)
SECONDS = 5.0  # how long the device works
FEATURES = 12_416
PHOTOGRAPH = (500, 375)


@dataclass
class SimulatedGpu:
    """A queue whose device is busy for a given time per image, whatever the host does meanwhile."""

    rate: float
    ahead: int = AHEAD
    started: float = 0.0
    idle_at: float = 0.0
    busy: float = 0.0
    rows: np.ndarray = field(
        default_factory=lambda: np.random.default_rng(0).random((GPU_BATCH, FEATURES), "f4")
    )

    def submit(self, pixels: list[Tensor]) -> Callable[[], np.ndarray]:
        """Queue a batch behind the others."""
        now, seconds = time.perf_counter(), len(pixels) / self.rate
        self.started = self.started or now
        self.idle_at = finished = max(now, self.idle_at) + seconds
        self.busy += seconds

        def result() -> np.ndarray:
            time.sleep(max(0.0, finished - time.perf_counter()))
            return self.rows[: len(pixels)]

        return result

    def release_memory(self) -> None:
        """There is none."""

    @property
    def utilization(self) -> float:
        """The fraction of the time in which the device was busy."""
        return self.busy / (self.idle_at - self.started)


class InMemory(ImageFiles):
    """Images that are decoded already."""

    pixels = torch.zeros(3, SIDE, SIDE, dtype=torch.uint8)

    def __getitem__(self, position: int) -> Tensor | str:
        """Return the same pixels for every image."""
        return self.pixels


@click.command()
@click.option("--workers", default=os.cpu_count() or 1, show_default=True, help="Processes that decode.")
@click.option(
    "--rate", "rates", multiple=True, type=float, default=RATES, help="Images per second of the GPU."
)
@click.option("--seconds", default=SECONDS, show_default=True, help="Of work for the GPU.")
def main(workers: int, rates: Sequence[float], seconds: float) -> None:
    """Print how busy an extraction keeps a GPU that computes a given number of images per second."""
    print(f"{workers} processes decode; batches of {GPU_BATCH}, {AHEAD} of them ahead")
    print(f"{'images/s':>8}  {'files: busy':>11}  {'images/s':>8}  {'in memory: busy':>15}  {'images/s':>8}")
    for rate in rates:
        with tempfile.TemporaryDirectory() as name:
            images = _write_photographs(Path(name), int(seconds * rate))
            found = [
                _extract(Path(name), images, rate, count, kind)
                for kind, count in ((ImageFiles, workers), (InMemory, 0))
            ]
        shown = "  ".join(
            f"{busy:>{width}.1%}  {reached:>8.0f}"
            for (busy, reached), width in zip(found, (11, 15), strict=True)
        )
        print(f"{rate:>8.0f}  {shown}", flush=True)


def _extract(
    folder: Path, images: list[Image], rate: float, workers: int, kind: type[ImageFiles]
) -> tuple[float, float]:
    gpu, extractor = SimulatedGpu(rate), _extractor()

    class Computer(LocalComputer):
        """This process, with the simulated device."""

        def time_per_image(self, extractor: Extractor) -> float:
            """Return what is simulated."""
            return 1 / rate

        def open_queue(self, extractor: Extractor) -> DeviceQueue:
            """Return the simulated device."""
            return gpu

    scratch = Scratch(folder / kind.__name__, extractor.kind, FEATURES)
    computer, started = Computer(extractor.device, GPU_BATCH, workers), time.perf_counter()
    extract(kind(images, folder, squash), extractor, scratch, computer, Report(lambda text: None))
    return gpu.utilization, len(images) / (time.perf_counter() - started)


def _extractor() -> Extractor:
    network = Network({}, (Tap("all", "all", "all"),), [Layer("all", FEATURES)])
    kind = {"backbone": "vgg16", "crops": "ten", "precision": "float32", "algorithm": "plain"}
    return Extractor(kind, network, squash, lambda images: images, torch.device("cpu"))


def _write_photographs(folder: Path, count: int) -> list[Image]:
    """Write JPEG files with the same picture and different contents."""
    noise = np.random.default_rng(0).integers(0, 256, (24, 32, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Picture.fromarray(noise).resize(PHOTOGRAPH, Picture.Resampling.BICUBIC).save(buffer, "JPEG", quality=90)
    picture, images = buffer.getvalue(), []
    for number in range(count):
        comment = b"\xff\xfe\x00\x06" + number.to_bytes(4)
        content = picture[:2] + comment + picture[2:]
        path = folder / f"{number}.jpg"
        path.write_bytes(content)
        images.append(
            Image(path.name, path.name, hashlib.sha256(content).hexdigest(), len(content), *PHOTOGRAPH)
        )
    return images


def tiny(folder: Path) -> None:
    """Run with little data."""
    main.main(["--workers", "1", "--rate", "100", "--seconds", "0.1"], standalone_mode=False)


if __name__ == "__main__":
    main()
