"""From a decoded image to the crops that the network sees.

Every variant is called as `crops(image)` with the normalized 256 x 256 image
(channels, height, width), and returns (crops, channels, 224, 224).
"""

import numpy as np
import torch
from PIL import Image
from torch import Tensor

SIDE = 256
CROP = 224
# Of the ImageNet images, per channel, as torchvision's weights were trained with.
MEAN = (0.485, 0.456, 0.406)
DEVIATION = (0.229, 0.224, 0.225)


def prepare(image: Image.Image) -> Tensor:
    """Squash an RGB image to 256 x 256, whatever its aspect, and normalize it."""
    squashed = image.resize((SIDE, SIDE), Image.Resampling.BILINEAR)
    pixels = torch.from_numpy(np.array(squashed, dtype=np.float32) / 255).permute(2, 0, 1)
    return (pixels - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(DEVIATION).view(3, 1, 1)


def center(image: Tensor) -> Tensor:
    """The middle of the image, once."""
    return _cut(image, [((SIDE - CROP) // 2, (SIDE - CROP) // 2)])


def ten(image: Tensor) -> Tensor:
    """The four corners and the middle, each also mirrored."""
    far = SIDE - CROP
    five = _cut(image, [(0, 0), (0, far), (far, 0), (far, far), (far // 2, far // 2)])
    return torch.cat([five, five.flip(-1)])


def _cut(image: Tensor, corners: list[tuple[int, int]]) -> Tensor:
    return torch.stack([image[:, y : y + CROP, x : x + CROP] for y, x in corners])


CROPS = {"center": center, "ten": ten}
