"""The crops of an image that the network sees.

Every variant is called as `crops(image)` with an image (channels, height, width) of 224
or more on either side, and returns (crops, channels, 224, 224).
"""

import torch
from torch import Tensor

SIDE = 256
CROP = 224


def center(image: Tensor) -> Tensor:
    """The middle of the image, once."""
    bottom, right = _room(image)
    return _cut(image, [(bottom // 2, right // 2)])


def five(image: Tensor) -> Tensor:
    """The four corners and the middle."""
    bottom, right = _room(image)
    return _cut(image, [(0, 0), (0, right), (bottom, 0), (bottom, right), (bottom // 2, right // 2)])


def ten(image: Tensor) -> Tensor:
    """The four corners and the middle, each also mirrored."""
    crops = five(image)
    return torch.cat([crops, crops.flip(-1)])


def _room(image: Tensor) -> tuple[int, int]:
    return image.shape[1] - CROP, image.shape[2] - CROP


def _cut(image: Tensor, corners: list[tuple[int, int]]) -> Tensor:
    return torch.stack([image[:, y : y + CROP, x : x + CROP] for y, x in corners])


CROPS = {"center": center, "five": five, "ten": ten}
