"""Rows that a network computes from pixels: with gradients from random crops, without from the centers."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
from PIL.Image import Image as PictureImage
from torch import Tensor

from fne.core.errors import InputError
from fne.core.files import text_digest
from fne.extraction.layers import CROP
from fne.extraction.preprocess import CROPS, Resize, normalize
from fne.extraction.read_images import ImageFiles, read_ahead
from fne.extraction.settings import InputFormat
from fne.finetuning.data import Crop, CropReader, RandomCrops
from fne.finetuning.tuned_network import TunedNetwork
from fne.store.catalog import Image
from fne.training.task import ParameterGroup


@dataclass(frozen=True)
class Photos:
    """The image files of a catalog."""

    catalog: Path  # for messages
    files: Mapping[str, Image]  # by id
    root: Path  # their folder
    resize: Resize  # as the extraction does it
    input: InputFormat  # how the network expects images
    workers: int  # the processes that read
    side: int = CROP  # pixels per side of what the network receives

    def centers(self, ids: Sequence[str], pin: bool) -> Iterator[Tensor]:
        """Yield the center crop (channels, height, width) of each image, in bytes."""

        def center(image: PictureImage) -> Tensor:
            return CROPS["center"](self.resize(image), self.side)[0]

        files = ImageFiles([self.files[each] for each in ids], self.root, center)
        return read_ahead(files, range(len(ids)), self.workers, pin)


class NetworkRows:
    """The rows of images as a network computes them.

    The view of an image is the epoch, which decides its random crop.

    Args:
        rates: factors on the learning rate, by the kind of weights in the network.
        batches: the crops that this process needs for each batch of an epoch, which are read ahead.
    """

    def __init__(
        self,
        network: TunedNetwork,
        rates: Mapping[str, float],
        photos: Photos,
        crops: RandomCrops,
        batches: Callable[[int], Sequence[list[Crop]]],
    ) -> None:
        self.network = network
        self._rates, self._photos = rates, photos
        self.side = photos.side
        self._pin = network.device.type == "cuda"
        self._reader = CropReader(crops, batches, photos.workers, self._pin)

    def parameter_groups(self) -> list[ParameterGroup]:
        """Return the trained weights of the network; frozen layers are left out."""
        kinds = self.network.trained_kinds().items()
        return [ParameterGroup(f"network_{kind}", own, self._rates[kind]) for kind, own in kinds if own]

    def check_ids(self, ids: Sequence[str]) -> None:
        """Refuse images without a file."""
        missing = [each for each in ids if each not in self._photos.files]
        if missing:
            raise InputError(f"{self._photos.catalog}: has no image file of {missing[0]!r}; run `dvc repro`")

    def digest(self, ids: Sequence[str]) -> str:
        """Return the digest of the image files."""
        return text_digest(json.dumps([[each, self._photos.files[each].sha256] for each in ids]))

    def read(self, ids: Sequence[str], views: Sequence[int] | None = None) -> Tensor:
        """Return the rows (images, features) of random crops, with gradients, or those of the centers."""
        if views is None:
            return next(self.blocks(ids, len(ids)))
        return self._compute(self._reader.read(list(zip(ids, views, strict=True))))

    def blocks(self, ids: Sequence[str], size: int) -> Iterator[Tensor]:
        """Yield the rows of the centers of `size` images at a time; few of them are decoded at once."""
        pixels = self._photos.centers(ids, self._pin)
        for start in range(0, len(ids), size):
            block = ids[start : start + size]
            with torch.no_grad():
                rows = torch.cat(
                    [self._compute(part) for part in _stacked(pixels, len(block), self.network.part)]
                )
            yield rows

    def close(self) -> None:
        """End the processes that read."""
        self._reader.close()

    def _compute(self, pixels: Tensor) -> Tensor:
        rows: Tensor = self.network(
            normalize(pixels.to(self.network.device, non_blocking=True), self._photos.input)
        )
        return rows


def _stacked(pixels: Iterator[Tensor], count: int, part: int) -> Iterator[Tensor]:
    """Yield the next images as tensors (part, channels, height, width), the last of which may be smaller."""
    for start in range(0, count, part):
        yield torch.stack(list(islice(pixels, min(part, count - start))))
