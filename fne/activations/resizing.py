"""From a decoded image to the pixels that crops are cut from.

Every variant is called as `resize(image)` with an RGB image and returns its pixels
(channels, height, width) as bytes; `normalize` turns those into what networks expect.
"""

from collections.abc import Callable

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from fne.activations.crops import SIDE

# Of the ImageNet images, per channel, as torchvision's weights were trained with.
MEAN = (0.485, 0.456, 0.406)
DEVIATION = (0.229, 0.224, 0.225)

Resize = Callable[[Image.Image], Tensor]


def squash(image: Image.Image) -> Tensor:
    """256 x 256, whatever the aspect of the image, as in the full-network embedding."""
    return _pixels(image.resize((SIDE, SIDE), Image.Resampling.BILINEAR))


def shorter_side(image: Image.Image) -> Tensor:
    """The shorter side at 256 and the aspect kept, as in order embeddings."""
    scale = SIDE / min(image.size)
    width, height = (max(SIDE, round(side * scale)) for side in image.size)
    return _pixels(image.resize((width, height), Image.Resampling.BILINEAR))


def normalize(pixels: Tensor) -> Tensor:
    """Scale bytes (..., channels, height, width) to what the networks were trained with."""
    mean = torch.tensor(MEAN, device=pixels.device).view(3, 1, 1)
    deviation = torch.tensor(DEVIATION, device=pixels.device).view(3, 1, 1)
    return (pixels.float() / 255 - mean) / deviation


def _pixels(image: Image.Image) -> Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()


RESIZES = {"shorter_side": shorter_side, "squash": squash}
