from itertools import product

import pytest
import torch
from torch.nn import functional

from fne.extraction.fast_convolutions.crop_sharing import share_crops
from fne.extraction.fast_convolutions.vector_code import PANEL
from fne.extraction.fast_convolutions.winograd import (
    Buffers,
    Filters,
    convolve_tiles,
    tile_size,
    transform_filters,
    winograd_convolve,
)
from fne.extraction.fast_convolutions.winograd_points import SIZES, filter_matrix
from fne.extraction.forward_pass import activations
from fne.extraction.preprocess import CROPS
from tests.support.networks import VGG16, VGG19, narrow_vgg, relative_difference, smooth_images


def convolve(images, weight, bias, padding, relu=False):
    """What torch computes in float64, for (images, height, width, channels)."""
    result = functional.conv2d(
        images.double().permute(0, 3, 1, 2), weight.double(), bias.double(), padding=padding
    )
    return (result.relu() if relu else result).permute(0, 2, 3, 1)


def drawn(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize("sides", [(4, 4), (3, 3), (5, 9), (14, 14), (6, 31)])
@pytest.mark.parametrize("size", list(product(SIZES, repeat=2)))
def test_a_layer_is_that_of_float64_whatever_its_size_and_that_of_its_tiles(
    monkeypatch, size, sides, padding
):
    monkeypatch.setattr("fne.extraction.fast_convolutions.winograd.tile_size", lambda height, width: size)
    images, weight, bias = drawn(2, *sides, 32), drawn(48, 32, 3, 3) / 17, drawn(48)
    (found,) = convolve_tiles(Filters(weight), bias, False, [(images, padding)], Buffers())
    assert relative_difference(found.double(), convolve(images, weight, bias, padding)) < 2e-6


@pytest.mark.parametrize("size", [(4, 4), (5, 5), (4, 6)])
def test_filters_have_the_bits_of_a_transform_of_all_at_once(size):
    weight = drawn(80, 64, 3, 3).contiguous(memory_format=torch.channels_last)
    rows, columns = (torch.tensor(filter_matrix(each), dtype=torch.float64) for each in size)
    expected = torch.einsum("ia,kcab,jb->ijck", rows, weight.double(), columns).flatten(0, 1).float()
    found = transform_filters(weight, size).transpose(1, 2).flatten(2)
    assert torch.equal(found[..., :80], expected)
    assert found.shape[2] == -(-80 // PANEL) * PANEL
    assert not found[..., 80:].any()


def test_the_sum_over_the_channels_of_a_wide_layer_is_precise():
    images, weight, bias = drawn(1, 14, 14, 512).relu(), drawn(512, 512, 3, 3) / 48, drawn(512)
    (found,) = convolve_tiles(Filters(weight), bias, True, [(images, 1)], Buffers())
    assert relative_difference(found.double(), convolve(images, weight, bias, 1, relu=True)) < 5e-6


@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_batches_of_different_sizes_are_convolved_together(monkeypatch, chunk):
    monkeypatch.setattr("fne.extraction.fast_convolutions.winograd.CHUNK", chunk)
    weight, bias = drawn(16, 16, 3, 3) / 12, drawn(16)
    batches = [(drawn(1, 12, 12, 16), 1), (drawn(4, 3, 14, 16), 0), (drawn(2, 6, 5, 16), 0)]
    found = convolve_tiles(Filters(weight), bias, True, batches, Buffers())
    for result, (images, padding) in zip(found, batches, strict=True):
        assert relative_difference(result.double(), convolve(images, weight, bias, padding, relu=True)) < 2e-6


@pytest.mark.parametrize(
    ("result", "size"),
    [
        ((256, 256), (4, 4)),
        ((256, 2), (4, 4)),
        ((32, 5), (4, 5)),
        ((6, 32), (6, 4)),
        ((5, 5), (4, 5)),
        ((14, 14), (5, 5)),
        ((28, 28), (4, 4)),
    ],
)
def test_tiles_are_larger_than_4_pixels_only_for_narrow_strips_and_small_images(result, size):
    assert tile_size(*result) == size


@pytest.mark.parametrize("chunk", [1, 5, 14, 15, 40])
def test_the_bits_of_a_tile_do_not_depend_on_the_tiles_beside_it(monkeypatch, chunk):
    images, filters, bias = drawn(3, 14, 22, 32), Filters(drawn(80, 32, 3, 3)), drawn(80)
    (expected,) = convolve_tiles(filters, bias, True, [(images, 1)], Buffers())
    monkeypatch.setattr("fne.extraction.fast_convolutions.winograd.CHUNK", chunk)
    (found,) = convolve_tiles(filters, bias, True, [(images, 1)], Buffers())
    assert torch.equal(found, expected)


def test_nan_is_propagated_through_the_relu():
    images = torch.zeros(1, 4, 4, 16)
    images[0, 0, 0, 0] = torch.nan
    filters = Filters(drawn(16, 16, 3, 3))
    (found,) = convolve_tiles(filters, torch.zeros(16), True, [(images, 1)], Buffers())
    assert found[0, 0, 0].isnan().all()


@pytest.mark.parametrize("crops", ["ten", "five"])
@pytest.mark.parametrize(
    ("blocks", "units", "taken"), [(VGG16, 24, "post_relu"), (VGG19, 0, "post_relu"), (VGG16, 24, "pre_relu")]
)
def test_rows_are_those_of_the_reference(blocks, units, taken, crops):
    network = narrow_vgg(blocks, units=units, activations=taken)
    (image,) = smooth_images(1)
    found = share_crops(network, crops, winograd_convolve(list(network.modules.values())))(image)
    assert relative_difference(found, activations(network, CROPS[crops](image))) < 5e-6


def test_convolutions_whose_channels_do_not_fill_a_block_are_computed_by_torch():
    network = narrow_vgg((1, 2), width=10, units=0)
    (image,) = smooth_images(1)
    found = share_crops(network, "ten", winograd_convolve(list(network.modules.values())))(image)
    assert relative_difference(found, activations(network, CROPS["ten"](image))) < 1e-6


def test_the_convolutions_of_vgg16_are_those_of_the_reference():
    network = narrow_vgg(widths=(64, 128, 256, 512, 512), units=0)
    assert sum(layer.features for layer in network.layers) == 4224
    (image,) = smooth_images(1)
    found = share_crops(network, "five", winograd_convolve(list(network.modules.values())))(image)
    assert relative_difference(found, activations(network, CROPS["five"](image))) < 5e-6


def test_ternary_values_agree_with_those_of_the_reference():
    network = narrow_vgg()
    compute = share_crops(network, "five", winograd_convolve(list(network.modules.values())))
    images = smooth_images(12)
    expected = torch.stack([activations(network, CROPS["five"](image)) for image in images])
    found = torch.stack([compute(image) for image in images])
    assert (ternary(found, expected) == ternary(expected, expected)).float().mean() >= 0.9999


def ternary(rows, reference):
    scores = (rows - reference.mean(dim=0)) / reference.std(dim=0).clamp_min(1e-9)
    return (scores > 0.15).int() - (scores < -0.25).int()
