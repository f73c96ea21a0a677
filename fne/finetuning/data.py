"""Random crops of images, read ahead of the training.

A crop is a function of the seed, the epoch and the image. So it does not depend on the order of the images,
on the processes that read them, or on an interruption.
"""

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count, islice
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from fne.core.errors import InputError
from fne.extraction.layers import CROP
from fne.extraction.preprocess import FILTERS
from fne.extraction.read_images import read_ahead, read_pixels
from fne.store.catalog import Image as ImageFile

# How often a box of random size and shape is drawn before the largest one at the center is taken.
ATTEMPTS = 10

Crop = tuple[str, int]  # the id of an image, and the epoch that decides which crop of it


@dataclass(frozen=True)
class CropChoices:
    """How crops are drawn."""

    share: float  # the smallest fraction of the image's area that a crop keeps
    aspect: float  # the largest ratio of its sides
    mirror: bool  # whether half of the crops are mirrored
    filter: str  # how images are resized, a key of `fne.extraction.preprocess.FILTERS`
    side: int = CROP  # pixels per side of what the network receives


@dataclass(frozen=True)
class Box:
    """A crop of an image in pixels, and whether it is mirrored."""

    left: int
    top: int
    width: int
    height: int
    mirrored: bool


def draw_box(size: tuple[int, int], key: str, choices: CropChoices) -> Box:
    """Draw the crop of an image of some width and height, a function of `key`.

    Example:
        >>> whole = CropChoices(share=1.0, aspect=1.0, mirror=False, filter="bicubic")
        >>> draw_box((100, 80), "0 0 a.jpg", whole)
        Box(left=10, top=0, width=80, height=80, mirrored=False)
    """
    digest = hashlib.sha256(key.encode()).digest()
    generator = np.random.default_rng(int.from_bytes(digest[:8]))
    mirrored = bool(choices.mirror and generator.random() < 0.5)
    width, height = size
    limit = math.log(choices.aspect)
    for _ in range(ATTEMPTS):
        area = width * height * generator.uniform(choices.share, 1.0)
        ratio = math.exp(generator.uniform(-limit, limit))
        wide, high = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < wide <= width and 0 < high <= height:
            left, top = generator.integers(width - wide + 1), generator.integers(height - high + 1)
            return Box(int(left), int(top), wide, high, mirrored)
    wide, high = min(width, round(height * choices.aspect)), min(height, round(width * choices.aspect))
    return Box((width - wide) // 2, (height - high) // 2, wide, high, mirrored)


def cut(image: Image.Image, box: Box, filter_name: str, side: int = CROP) -> Tensor:
    """Return the pixels (channels, side, side) of a crop, in bytes."""
    edges = (box.left, box.top, box.left + box.width, box.top + box.height)
    pixels = np.array(image.resize((side, side), FILTERS[filter_name], box=edges))
    return torch.from_numpy(pixels[:, ::-1].copy() if box.mirrored else pixels).permute(2, 0, 1).contiguous()


class RandomCrops(Dataset[Tensor | str]):
    """Crops of images: pixels, or an error message, see `ImageFiles`."""

    def __init__(self, images: Mapping[str, ImageFile], root: Path, seed: int, choices: CropChoices) -> None:
        self._images = images
        self._root = root
        self._seed = seed
        self._choices = choices

    def __getitem__(self, key: Crop) -> Tensor | str:
        image_id, epoch = key
        name = f"{self._seed} {epoch} {image_id}"

        def crop(image: Image.Image) -> Tensor:
            return cut(
                image, draw_box(image.size, name, self._choices), self._choices.filter, self._choices.side
            )

        try:
            return read_pixels(self._images[image_id], self._root, crop)
        except InputError as error:
            return error.message


class CropReader:
    """Reads the crops of one batch after the other, ahead of the training.

    `batches` returns the crops that this process needs for each batch of an epoch.
    """

    def __init__(
        self, crops: RandomCrops, batches: Callable[[int], Sequence[list[Crop]]], workers: int, pin: bool
    ) -> None:
        self._crops = crops
        self._batches = lru_cache(maxsize=2)(batches)
        self._workers, self._pin = workers, pin
        self._expected: Iterator[Crop] = iter(())
        self._pixels: Iterator[Tensor] = iter(())

    def read(self, crops: list[Crop]) -> Tensor:
        """Return the pixels (crops, channels, 224, 224) of a batch, in bytes."""
        if list(islice(self._expected, len(crops))) != crops:  # at the start, and after an interruption
            self._expected = islice(self._following(crops), len(crops), None)
            self._pixels = read_ahead(self._crops, self._following(crops), self._workers, self._pin)
        return torch.stack([next(self._pixels) for _ in crops])

    def close(self) -> None:
        """End the processes that read."""
        self._expected, self._pixels = iter(()), iter(())

    def _following(self, crops: list[Crop]) -> Iterator[Crop]:
        """Yield the crops of a batch, and those of all batches after it."""
        _, epoch = crops[0]
        batches = self._batches(epoch)
        for batch in batches[batches.index(crops) :]:
            yield from batch
        for later in count(epoch + 1):
            for batch in self._batches(later):
                yield from batch
