import pytest
import torch
from torchvision.transforms import functional

from fne.activations.crops import CROPS

SIZES = [(256, 256), (256, 340), (300, 224)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("name", "reference"), [("five", functional.five_crop), ("ten", functional.ten_crop)]
)
def test_crops_are_those_of_torchvision(size, name, reference):
    image = torch.randn(3, *size)
    # torchvision has the same crops in another order, and the order does not matter to a mean.
    expected = {crop.numpy().tobytes() for crop in reference(image, 224)}
    assert {crop.numpy().tobytes() for crop in CROPS[name](image)} == expected


@pytest.mark.parametrize("size", SIZES)
def test_the_center_crop_is_that_of_torchvision(size):
    image = torch.randn(3, *size)
    assert torch.equal(CROPS["center"](image)[0], functional.center_crop(image, 224))


@pytest.mark.parametrize("name", CROPS)
def test_every_variant_gives_crops_of_224(name):
    assert CROPS[name](torch.zeros(3, 256, 256)).shape[1:] == (3, 224, 224)
