import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import functional

from fne.extraction.preprocess import CROPS, RESIZES, normalize, resize_for
from fne.extraction.settings import CAFFE, TORCHVISION

SIZES = [(256, 256), (256, 340), (300, 224)]


def gradient(width: int, height: int) -> Image.Image:
    pixels = np.add.outer(np.arange(height), np.arange(width)) % 256
    return Image.fromarray(np.stack([pixels, pixels[::-1], pixels[:, ::-1]], axis=2).astype(np.uint8))


@pytest.mark.parametrize("size", [(500, 300), (300, 500), (100, 90)])
def test_a_squashed_and_normalized_image_equals_that_of_torchvision(size):
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
def test_every_resize_gives_bytes_that_are_large_enough_for_crops(name):
    pixels = RESIZES[name](gradient(10, 400))
    assert pixels.dtype == torch.uint8
    assert min(pixels.shape[1:]) >= 224


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("name", "reference"),
    [("five", functional.five_crop), ("ten", functional.ten_crop), ("center", functional.center_crop)],
)
def test_crops_are_those_of_torchvision(size, name, reference):
    image = torch.randn(3, *size)
    crops = reference(image, 224)
    # torchvision has the same crops in another order, and the order does not matter to a mean.
    expected = {crop.numpy().tobytes() for crop in (crops if isinstance(crops, tuple) else [crops])}
    found = CROPS[name](image)
    assert found.shape[1:] == (3, 224, 224)
    assert {crop.numpy().tobytes() for crop in found} == expected


def test_caffes_input_is_bgr_without_the_mean_pixel():
    pixels = torch.tensor([[[10]], [[20]], [[30]]], dtype=torch.uint8)
    expected = torch.tensor([30 - 103.939, 20 - 116.779, 10 - 123.68])
    assert torch.allclose(normalize(pixels, CAFFE).flatten(), expected)


def test_a_network_rewritten_for_caffes_input_gives_the_same_values():
    """The two inputs are linear maps of each other: a convolution can absorb the difference."""
    pixels = torch.randint(256, (3, 8, 8), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    weight = torch.randn(4, 3, 3, 3, generator=torch.Generator().manual_seed(1))
    mean, deviation = (torch.tensor(values) for values in (TORCHVISION.mean, TORCHVISION.deviation))
    rewritten = (weight / (255 * deviation.view(1, 3, 1, 1))).flip(1)
    shift = (torch.tensor(CAFFE.mean).flip(0) / 255 - mean) / deviation
    bias = (weight.sum(dim=(2, 3)) * shift).sum(dim=1)
    ours = torch.conv2d(normalize(pixels)[None], weight)
    theirs = torch.conv2d(normalize(pixels, CAFFE)[None], rewritten, bias)
    assert torch.allclose(ours, theirs, atol=1e-4)


def test_the_size_and_the_filter_are_those_that_the_weights_expect():
    image = gradient(500, 300)
    assert resize_for("squash", TORCHVISION) is RESIZES["squash"]
    wanted = TORCHVISION.model_copy(update={"size": 232, "filter": "bicubic"})
    pixels = resize_for("squash", wanted)(image)
    expected = np.array(image.resize((232, 232), Image.Resampling.BICUBIC))
    assert (pixels.permute(1, 2, 0).numpy() == expected).all()
