"""Small images, and a simple extractor with two features: how red an image is, and twice that."""

from collections.abc import Generator, Iterable
from itertools import islice
from pathlib import Path

import torch
from PIL import Image as Picture

from fne.extraction.computer import ComputedRows, Computer, Job
from fne.extraction.extractor import Extractor
from fne.extraction.forward_pass import Network
from fne.extraction.layers import Tap
from fne.extraction.preprocess import RESIZES
from fne.store.catalog import Image
from fne.store.layout import Layer
from tests.support.datasets import image_entry


def draw(root: Path, number: int) -> Image:
    """Draw an image that is `number` tenths red."""
    path = root / f"{number}.png"
    Picture.new("RGB", (40, 30), (number * 25, 0, 0)).save(path)
    return image_entry(path)


def redness(number: int) -> float:
    """Return the first feature of that image."""
    return (number * 25 / 255 - 0.485) / 0.229


def red_extractor(computed: list[int] | None = None) -> Extractor:
    """Return an extractor with two layers, which appends the sizes of its batches to `computed`."""

    def rows(images: torch.Tensor) -> torch.Tensor:
        if computed is not None:
            computed.append(len(images))
        red = images[:, 0].mean(dim=(1, 2))
        return torch.stack([red, 2 * red], dim=1)

    network = Network({}, (Tap("a", "a", "a"), Tap("b", "b", "b")), [Layer("a", 1), Layer("b", 1)])
    kind = {"backbone": "alexnet", "crops": "center", "precision": "float32", "algorithm": "plain"}
    return Extractor(kind, network, RESIZES["squash"], rows, torch.device("cpu"))


def computed(computer: Computer, job: Job, positions: Iterable[int]) -> Generator[ComputedRows, None, None]:
    """Yield the rows of images, which are submitted as the computer has room for them."""
    submitted, left, todo = 0, True, iter(positions)
    with computer.start(job):
        while left or computer.busy:
            taken = list(islice(todo, computer.room))
            submitted += len(taken)
            left = submitted < job.todo
            computer.submit(taken)
            yield from computer.finished()
