import pytest
import torch
from torch.nn import functional

from fne.extraction.fast_convolutions.crop_sharing import crop_sums, cut_crops
from fne.extraction.fast_convolutions.strips import (
    Scale,
    SharedCrops,
    convolved,
    mapped,
    neighborhoods,
    pooled,
    shared_crops,
)
from fne.extraction.layers import CROP
from fne.extraction.preprocess import CROPS
from fne.extraction.settings import SIDE
from tests.support.networks import VGG16, VGG19, smooth_images

WEIGHT = torch.randn(3, 3, 3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64) / 4


def convolve(images, padding):
    return (
        functional.conv2d(images.permute(0, 3, 1, 2), WEIGHT, padding=padding)
        .permute(0, 2, 3, 1)
        .contiguous()
    )


def halve(images):
    return functional.max_pool2d(images.permute(0, 3, 1, 2), 2).permute(0, 2, 3, 1).contiguous()


def shared_convolution(shared: SharedCrops) -> SharedCrops:
    return convolved(
        shared, [convolve(shared.image, 1), *(convolve(each, 0) for each in neighborhoods(shared))]
    )


# Widths before a pool that are even, odd, and as in VGG16 ("c" is a convolution, "p" a pool).
@pytest.mark.parametrize("layers", ["", "c", "cc", "ccp", "cp", "cpcp", "cccp", "ccpccpcccpcccp"])
def test_image_and_strips_equal_the_crops_computed_one_by_one(layers):
    images = smooth_images(2).double()
    shared = shared_crops(images.permute(0, 2, 3, 1).contiguous())
    crops = torch.stack([CROPS["five"](image) for image in images])  # (images, crops, ...)
    expected = crops.flatten(0, 1).permute(0, 2, 3, 1)
    for layer in layers:
        shared = shared_convolution(shared) if layer == "c" else pooled(shared, halve)
        expected = convolve(expected, 1) if layer == "c" else halve(expected)
    found = cut_crops(shared)  # corners in the order of their edges: bottom right first
    order = [3, 2, 1, 0, 4]
    in_order = expected.unflatten(0, (2, 5))[:, order].transpose(0, 1).flatten(0, 1)
    assert torch.allclose(found, in_order, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("layers", ["", "c", "ccp", "ccpcc"])
def test_sums_over_all_crops_need_no_crops(layers):
    shared = shared_crops(smooth_images(2).permute(0, 2, 3, 1).contiguous().double())
    for layer in layers:
        shared = shared_convolution(shared) if layer == "c" else pooled(shared, halve)
    found = crop_sums(mapped(shared, torch.relu))
    assert torch.allclose(found.double(), cut_crops(shared).relu().sum(dim=(0, 1, 2)), rtol=1e-5)


def test_images_of_another_size_are_refused():
    with pytest.raises(ValueError, match=r"expected images of side 256, got \[256, 300\]"):
        shared_crops(torch.zeros(1, 256, 300, 3))


@pytest.mark.parametrize(
    ("blocks", "widths"),
    [
        (VGG16, [1, 2, 2, 3, 3, 4, 5, 4, 5, 6, 4, 5, 6]),
        (VGG19, [1, 2, 2, 3, 3, 4, 5, 6, 4, 5, 6, 7, 5, 6, 7, 8]),
    ],
)
def test_strips_widen_with_every_convolution_and_halve_with_every_pool(blocks, widths):
    found, scale = [], Scale()
    for count in blocks:
        for _ in range(count):
            scale = scale.convolved()
            found.append(scale.width)
        scale = scale.pooled()
    assert found == widths


def test_pools_are_aligned_between_crops_until_the_center_crop_starts_at_an_odd_pixel():
    scales = [Scale(stride) for stride in (1, 2, 4, 8, 16)]
    assert [scale.poolable for scale in scales] == [True, True, True, True, False]
    assert [scale.frames[1].start for scale in scales] == [16, 8, 4, 2, 1]


@pytest.mark.parametrize("width", [0, 3, 20])
def test_the_coverage_counts_the_crops_that_have_a_pixel_outside_their_strips(width):
    scale = Scale(1, width)
    corners, center = scale.coverage()
    starts = [0, SIDE - CROP]
    for pixel in range(SIDE):
        # A crop has a strip only where it ends inside the image.
        inside = [
            (start == 0 or pixel >= start + width) and (start > 0 or pixel < CROP - width) for start in starts
        ]
        assert corners[pixel] == sum(inside)
        half = (SIDE - CROP) // 2
        assert center[pixel] == (half + width <= pixel < half + CROP - width)


def test_strips_fit_until_they_meet():
    assert Scale(8, 8).fits
    assert not Scale(8, 12).fits
