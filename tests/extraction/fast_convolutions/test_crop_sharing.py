import pytest
import torch
from torch import nn

from fne.extraction.fast_convolutions.crop_sharing import (
    convolve_directly,
    plan,
    share_crops,
    unsupported_reason,
)
from fne.extraction.forward_pass import Network, activations
from fne.extraction.preprocess import CROPS
from tests.support.networks import VGG16, VGG19, narrow_vgg, relative_difference, smooth_images


def assert_rows_are_exact(network: Network, crops: str) -> None:
    (image,) = smooth_images(1)
    found = share_crops(network, crops, convolve_directly)(image)
    assert len(found) == sum(layer.features for layer in network.layers)
    assert relative_difference(found, activations(network, CROPS[crops](image))) < 1e-6


@pytest.mark.parametrize("crops", ["ten", "five"])
@pytest.mark.parametrize("blocks", [VGG16, VGG19])
def test_shared_crops_give_what_the_crops_give_one_by_one(blocks, crops):
    assert_rows_are_exact(narrow_vgg(blocks), crops)


@pytest.mark.parametrize("blocks", [VGG16, VGG16[:4], VGG16[:2], (1,), (2, 2, 3, 1)])
def test_a_network_may_end_with_any_convolution(blocks):
    assert_rows_are_exact(narrow_vgg(blocks, units=0), "ten")


def test_activations_before_the_relu_are_shared_too():
    assert_rows_are_exact(narrow_vgg(activations="pre_relu"), "ten")


def test_wide_layers_lose_no_precision():
    assert_rows_are_exact(narrow_vgg((1, 1, 1, 1, 1), width=128, units=0), "five")


def test_a_relu_is_fused_with_its_convolution_unless_the_value_between_them_is_a_layer():
    fused = plan(narrow_vgg())
    assert not any(isinstance(step.module, nn.ReLU) for step in fused)
    assert sum(step.kept for step in fused) == 15
    separate = plan(narrow_vgg(activations="pre_relu"))
    assert sum(isinstance(step.module, nn.ReLU) for step in separate) == 15
    assert all(step.kept == isinstance(step.module, nn.Conv2d | nn.Linear) for step in separate)


def test_sums_do_not_overflow_in_half_precision():
    network = narrow_vgg(units=0)
    (image,) = smooth_images(1)
    with torch.autocast("cpu", torch.float16):
        found = share_crops(network, "five", convolve_directly)(image * 10)
    assert found.dtype == torch.float32
    assert relative_difference(found, activations(network, CROPS["five"](image * 10))) < 1e-2


def test_nan_is_propagated_to_the_row():
    (image,) = smooth_images(1)
    image[0, 100, 100] = torch.nan
    assert share_crops(narrow_vgg(), "ten", convolve_directly)(image).isnan().any()


def with_module(index: int, module: nn.Module) -> Network:
    network = narrow_vgg()
    modules = network.modules | {str(index): module}
    return Network(modules, network.taps, network.layers)


def test_a_network_like_vgg_is_supported():
    assert unsupported_reason(narrow_vgg(), "ten") is None


@pytest.mark.parametrize(
    "module",
    [
        nn.Conv2d(16, 16, 5, padding=2),
        nn.Conv2d(16, 16, 3, padding=1, stride=2),
        nn.Conv2d(16, 16, 3, padding=0),
        nn.Conv2d(16, 16, 3, padding=1, groups=2),
        nn.Conv2d(16, 16, 3, padding=1, padding_mode="reflect"),
        nn.MaxPool2d(3, 2),
        nn.BatchNorm2d(16),
    ],
)
def test_a_module_that_does_not_keep_the_crops_aligned_is_not_supported(module):
    assert str(unsupported_reason(with_module(2, module), "ten")).startswith(
        "2 is not a 3x3 convolution of stride 1"
    )


def test_any_module_is_supported_after_the_crops_are_cut_out():
    last_pool = max(
        int(name) for name, each in narrow_vgg().modules.items() if isinstance(each, nn.MaxPool2d)
    )
    assert unsupported_reason(with_module(last_pool, nn.MaxPool2d(3, 2)), "ten") is None


def test_other_crops_are_not_supported():
    assert unsupported_reason(narrow_vgg(), "center") == "it supports crops 'five' and 'ten', not 'center'"


def test_so_many_convolutions_that_strips_meet_are_not_supported():
    assert "too many convolutions up to 190" in str(unsupported_reason(narrow_vgg((100,), width=1), "ten"))
