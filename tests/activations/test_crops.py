import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import functional

from fne.activations.crops import CROPS, prepare


def gradient() -> Image.Image:
    pixels = np.add.outer(np.arange(300), np.arange(500)) % 256
    return Image.fromarray(np.stack([pixels, pixels[::-1], pixels[:, ::-1]], axis=2).astype(np.uint8))


def test_ten_crops_are_those_of_torchvision():
    image = torch.randn(3, 256, 256)
    # torchvision has the same crops in another order, and the order does not matter to a mean.
    expected = {crop.numpy().tobytes() for crop in functional.ten_crop(image, 224)}
    assert {crop.numpy().tobytes() for crop in CROPS["ten"](image)} == expected


def test_the_center_crop_is_that_of_torchvision():
    image = torch.randn(3, 256, 256)
    assert torch.equal(CROPS["center"](image)[0], functional.center_crop(image, 224))


@pytest.mark.parametrize("name", CROPS)
def test_every_variant_gives_crops_of_224(name):
    assert CROPS[name](torch.zeros(3, 256, 256)).shape[1:] == (3, 224, 224)


def test_an_image_is_squashed_and_normalized_as_torchvision_does_it():
    image = gradient()
    expected = functional.normalize(
        functional.to_tensor(functional.resize(image, [256, 256])),
        [0.485, 0.456, 0.406],
        [0.229, 0.224, 0.225],
    )
    assert torch.allclose(prepare(image), expected, atol=1e-6)
