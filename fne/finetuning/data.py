"""Random crops of images, and the batches in which training sees them.

A crop is a function of the seed, the epoch and the image. So it does not depend on the order of the images,
on the processes that read them, or on an interruption.
"""

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from fne.core.errors import InputError
from fne.core.files import text_digest
from fne.extraction.preprocess import CROP, FILTERS
from fne.extraction.read_images import read_ahead, read_pixels
from fne.matching.word_table import pad_captions
from fne.store.catalog import Captioned
from fne.store.catalog import Image as ImageFile
from fne.text.tokens import Tokens

# How often a box of random size and shape is drawn before the largest one at the center is taken.
ATTEMPTS = 10


@dataclass(frozen=True)
class CropChoices:
    """How crops are drawn.

    Attributes:
        share: the smallest fraction of the image's area that a crop keeps.
        aspect: the largest ratio of its sides.
        mirror: whether half of the crops are mirrored.
        filter: of the resizing, a key of `fne.extraction.preprocess.FILTERS`.
    """

    share: float
    aspect: float
    mirror: bool
    filter: str


@dataclass(frozen=True)
class Box:
    """A crop of an image in pixels, and whether it is mirrored."""

    left: int
    top: int
    width: int
    height: int
    mirrored: bool


def draw_box(size: tuple[int, int], key: str, choices: CropChoices) -> Box:
    """Draw the crop of an image.

    Args:
        size: the width and height of the image.
        key: what the crop is a function of.
        choices: how crops are drawn.

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


def cut(image: Image.Image, box: Box, filter_name: str) -> Tensor:
    """Return the pixels (channels, 224, 224) of a crop, in bytes."""
    edges = (box.left, box.top, box.left + box.width, box.top + box.height)
    pixels = np.array(image.resize((CROP, CROP), FILTERS[filter_name], box=edges))
    return torch.from_numpy(pixels[:, ::-1].copy() if box.mirrored else pixels).permute(2, 0, 1).contiguous()


class RandomCrops(Dataset[Tensor | str]):
    """Crops of images by (image id, epoch): pixels, or an error message, see `ImageFiles`."""

    def __init__(self, images: dict[str, ImageFile], root: Path, seed: int, choices: CropChoices) -> None:
        self._images = images
        self._root = root
        self._seed = seed
        self._choices = choices

    def __getitem__(self, key: tuple[str, int]) -> Tensor | str:
        image_id, epoch = key
        name = f"{self._seed} {epoch} {image_id}"

        def crop(image: Image.Image) -> Tensor:
            return cut(image, draw_box(image.size, name, self._choices), self._choices.filter)

        try:
            return read_pixels(self._images[image_id], self._root, crop)
        except InputError as error:
            return error.message


@dataclass(frozen=True)
class CropBatch:
    """The images of one step, and the captions to learn from.

    Attributes:
        epoch: counted from 0 over all phases.
        number: of the batch in its epoch, counted from 0.
        image_ids: the first half are anchors; the others are the wrong images of the anchors' captions.
        caption_ids: one caption of each anchor.
        candidates: captions of images that are no anchors, of which wrong ones are mined.
    """

    epoch: int
    number: int
    image_ids: list[str]
    caption_ids: list[str]
    candidates: list[str]

    def __len__(self) -> int:
        return len(self.image_ids)

    def __str__(self) -> str:
        return f"images {', '.join(self.image_ids)}"


class Captions:
    """The captioned images of one split, with the words of their captions at hand."""

    def __init__(self, captioned: Sequence[Captioned], tokens: Tokens) -> None:
        self.captioned = list(captioned)
        self.image_ids = [record.id for record in captioned]
        self.caption_ids = [each for record in captioned for each in record.caption_ids]
        tokens.check_ids(self.caption_ids)
        self._tokens = tokens
        self.owners = {each: record.id for record in captioned for each in record.caption_ids}

    @property
    def counts(self) -> np.ndarray:
        """How many captions each image has (images)."""
        return np.array([len(record.captions) for record in self.captioned])

    def digest(self, images: Mapping[str, ImageFile]) -> str:
        """Return the digest of the image files and the words of all captions."""
        files = [[each, images[each].sha256] for each in self.image_ids]
        words = [[each, self._tokens.read(each).tolist()] for each in self.caption_ids]
        return text_digest(json.dumps([files, words]))

    def words(self, ids: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Return padded words (captions, longest) and lengths (captions)."""
        return pad_captions([self._tokens.read(each) for each in ids])

    def steps(self, batch: int) -> int:
        """Return the batches per epoch; an incomplete one is left out, unless it is the only one."""
        return max(1, len(self.captioned) // batch)

    def batches(self, seed: int, epoch: int, batch: int, candidates: int) -> list[CropBatch]:
        """Return the batches of an epoch, a function of seed and epoch.

        Args:
            seed: of the order, the captions and the candidates.
            epoch: counted from 0.
            batch: the images per batch, an even number.
            candidates: how many captions are mined from, at most.
        """
        generator = np.random.default_rng((seed, epoch))
        order = generator.permutation(len(self.captioned))
        size = min(batch, len(order) // 2 * 2)
        return [
            self._batch(generator, epoch, number, order[number * size : (number + 1) * size], candidates)
            for number in range(self.steps(batch))
        ]

    def _batch(
        self, generator: np.random.Generator, epoch: int, number: int, positions: np.ndarray, candidates: int
    ) -> CropBatch:
        records = [self.captioned[position] for position in positions]
        anchors = records[: len(records) // 2]
        own = [each.caption_ids[generator.integers(len(each.captions))] for each in anchors]
        taken = {each.id for each in anchors}
        # As many as there must be to have enough without those of the anchors.
        drawn = min(len(self.caption_ids), candidates + sum(len(each.captions) for each in anchors))
        chosen = [self.caption_ids[k] for k in generator.choice(len(self.caption_ids), drawn, replace=False)]
        wrong = [each for each in chosen if self.owners[each] not in taken][:candidates]
        return CropBatch(epoch, number, [each.id for each in records], own, wrong)


class CropStream:
    """Reads the crops of one batch after the other, ahead of the training.

    Args:
        crops: the crops.
        batches: the batches of each epoch.
        rows: of a batch of some size, the images that this process computes.
        workers: the processes that read.
        pin: whether pixels are sent to a GPU.
    """

    def __init__(
        self,
        crops: RandomCrops,
        batches: Callable[[int], Sequence[CropBatch]],
        rows: Callable[[int], slice],
        workers: int,
        pin: bool,
    ) -> None:
        self._crops = crops
        self._batches = batches
        self._rows = rows
        self._workers = workers
        self._pin = pin
        self._next: tuple[int, int] | None = None
        self._pixels: Iterator[Tensor] = iter(())

    def read(self, batch: CropBatch) -> Tensor:
        """Return the crops of this process's images (images, channels, 224, 224), in bytes.

        Raises:
            InputError: if an image cannot be read, or is not the one in the catalog.
        """
        if self._next != (batch.epoch, batch.number):  # at the start, and after an interruption
            self._pixels = read_ahead(
                self._crops, self._keys(batch.epoch, batch.number), self._workers, self._pin
            )
        last = batch.number + 1 == len(self._batches(batch.epoch))
        self._next = (batch.epoch + 1, 0) if last else (batch.epoch, batch.number + 1)
        own = batch.image_ids[self._rows(len(batch))]
        found = [next(self._pixels) for _ in own]
        return torch.stack(found) if found else torch.zeros((0, 3, CROP, CROP), dtype=torch.uint8)

    def close(self) -> None:
        """End the processes that read."""
        self._pixels, self._next = iter(()), None

    def _keys(self, epoch: int, number: int) -> Iterator[tuple[str, int]]:
        for current in count(epoch):
            for batch in self._batches(current)[number if current == epoch else 0 :]:
                for image_id in batch.image_ids[self._rows(len(batch))]:
                    yield image_id, current
