import pytest
import torch
from torch.nn import functional

from fne.activations.crops import CROPS
from fne.activations.gather import crop_sums, cut
from fne.activations.strips import Shared, convolved, mapped, neighborhoods, pooled, share
from tests.narrow import smooth_images

WEIGHT = torch.randn(3, 3, 3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64) / 4


def convolve(images, padding):
    return (
        functional.conv2d(images.permute(0, 3, 1, 2), WEIGHT, padding=padding)
        .permute(0, 2, 3, 1)
        .contiguous()
    )


def halve(images):
    return functional.max_pool2d(images.permute(0, 3, 1, 2), 2).permute(0, 2, 3, 1).contiguous()


def shared_convolution(shared: Shared) -> Shared:
    return convolved(
        shared, [convolve(shared.image, 1), *(convolve(each, 0) for each in neighborhoods(shared))]
    )


# Widths before a pool that are even, odd, and as in VGG16 ("c" is a convolution, "p" a pool).
@pytest.mark.parametrize("layers", ["", "c", "cc", "ccp", "cp", "cpcp", "cccp", "ccpccpcccpcccp"])
def test_image_and_strips_stand_for_the_crops_as_really_computed(layers):
    images = smooth_images(2).double()
    shared = share(images.permute(0, 2, 3, 1).contiguous())
    crops = torch.stack([CROPS["five"](image) for image in images])  # (images, crops, ...)
    expected = crops.flatten(0, 1).permute(0, 2, 3, 1)
    for layer in layers:
        shared = shared_convolution(shared) if layer == "c" else pooled(shared, halve)
        expected = convolve(expected, 1) if layer == "c" else halve(expected)
    found = cut(shared)  # corners in the order of their edges: bottom right first
    order = [3, 2, 1, 0, 4]
    in_order = expected.unflatten(0, (2, 5))[:, order].transpose(0, 1).flatten(0, 1)
    assert torch.allclose(found, in_order, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("layers", ["", "c", "ccp", "ccpcc"])
def test_sums_over_all_crops_need_no_crops(layers):
    shared = share(smooth_images(2).permute(0, 2, 3, 1).contiguous().double())
    for layer in layers:
        shared = shared_convolution(shared) if layer == "c" else pooled(shared, halve)
    found = crop_sums(mapped(shared, torch.relu))
    assert torch.allclose(found.double(), cut(shared).relu().sum(dim=(0, 1, 2)), rtol=1e-5)


def test_images_of_another_size_are_refused():
    with pytest.raises(ValueError, match=r"expected images of side 256, got \[256, 300\]"):
        share(torch.zeros(1, 256, 300, 3))
