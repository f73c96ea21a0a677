"""Preprocessing: from a decoded image to the crops that the network receives.

Every entry of `RESIZES` is called as `resize(image, size, resample)` with an RGB image and returns its
pixels (channels, height, width) as bytes. `normalize` scales these as an `InputFormat` describes. Every entry
of `CROPS` is called as `crops(image)` with an image (channels, height, width) of at least 224 pixels per side
and returns (crops, channels, 224, 224); `crops(image, side)` returns crops of another side.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from fne.extraction.layers import CROP
from fne.extraction.settings import SIDE, TORCHVISION, InputFormat

FILTERS = {"bicubic": Image.Resampling.BICUBIC, "bilinear": Image.Resampling.BILINEAR}

Resize = Callable[[Image.Image], Tensor]


def squash(image: Image.Image, size: int = SIDE, resample: str = "bilinear") -> Tensor:
    """Resize to 256 x 256 regardless of the aspect ratio, as in the full-network embedding."""
    return _pixels(image.resize((size, size), FILTERS[resample]))


def shorter_side(image: Image.Image, size: int = SIDE, resample: str = "bilinear") -> Tensor:
    """Resize the shorter side to 256 and keep the aspect ratio, as in order embeddings."""
    scale = size / min(image.size)
    width, height = (max(size, round(side * scale)) for side in image.size)
    return _pixels(image.resize((width, height), FILTERS[resample]))


def resize_for(name: str, wanted: InputFormat) -> Resize:
    """Return an entry of `RESIZES` with the size and the filter that weights expect."""
    if (wanted.size, wanted.filter) == (TORCHVISION.size, TORCHVISION.filter):
        return RESIZES[name]
    return partial(RESIZES[name], size=wanted.size, resample=wanted.filter)


def normalize(pixels: Tensor, wanted: InputFormat = TORCHVISION) -> Tensor:
    """Scale RGB bytes (..., channels, height, width) to the values that weights were trained with."""
    mean = torch.tensor(wanted.mean, device=pixels.device).view(3, 1, 1)
    deviation = torch.tensor(wanted.deviation, device=pixels.device).view(3, 1, 1)
    values = pixels.float() if wanted.range == 255 else pixels.float() / 255
    if wanted.channels == "bgr":
        values = values.flip(-3)
    return (values - mean) / deviation


def center(image: Tensor, side: int = CROP) -> Tensor:
    """Return one crop, at the center."""
    bottom, right = _room(image, side)
    return _cut(image, [(bottom // 2, right // 2)], side)


def five(image: Tensor, side: int = CROP) -> Tensor:
    """Return the crops at the four corners and at the center."""
    bottom, right = _room(image, side)
    return _cut(image, [(0, 0), (0, right), (bottom, 0), (bottom, right), (bottom // 2, right // 2)], side)


def ten(image: Tensor, side: int = CROP) -> Tensor:
    """Return the crops at the four corners and at the center, and their mirror images."""
    crops = five(image, side)
    return torch.cat([crops, crops.flip(-1)])


def _pixels(image: Image.Image) -> Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()


def _room(image: Tensor, side: int) -> tuple[int, int]:
    return image.shape[1] - side, image.shape[2] - side


def _cut(image: Tensor, corners: list[tuple[int, int]], side: int) -> Tensor:
    return torch.stack([image[:, y : y + side, x : x + side] for y, x in corners])


RESIZES: dict[str, Callable[..., Tensor]] = {"shorter_side": shorter_side, "squash": squash}
CROPS = {"center": center, "five": five, "ten": ten}
