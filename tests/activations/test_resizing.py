import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import functional

from fne.activations.resizing import RESIZES, normalize


def gradient(width: int, height: int) -> Image.Image:
    pixels = np.add.outer(np.arange(height), np.arange(width)) % 256
    return Image.fromarray(np.stack([pixels, pixels[::-1], pixels[:, ::-1]], axis=2).astype(np.uint8))


@pytest.mark.parametrize("size", [(500, 300), (300, 500), (100, 90)])
def test_a_squashed_and_normalized_image_is_that_of_torchvision(size):
    image = gradient(*size)
    expected = functional.normalize(
        functional.to_tensor(functional.resize(image, [256, 256])),
        [0.485, 0.456, 0.406],
        [0.229, 0.224, 0.225],
    )
    assert torch.allclose(normalize(RESIZES["squash"](image)), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("size", "shape"), [((500, 300), (256, 427)), ((300, 600), (512, 256)), ((90, 90), (256, 256))]
)
def test_the_shorter_side_is_256_and_the_aspect_is_kept(size, shape):
    assert RESIZES["shorter_side"](gradient(*size)).shape == (3, *shape)


@pytest.mark.parametrize("name", RESIZES)
def test_every_variant_gives_bytes_in_which_crops_have_room(name):
    pixels = RESIZES[name](gradient(10, 400))
    assert pixels.dtype == torch.uint8
    assert min(pixels.shape[1:]) >= 224
