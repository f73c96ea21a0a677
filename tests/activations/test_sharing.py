import pytest
import torch
from torch import nn

from fne.activations.crops import CROPS
from fne.activations.network import Network, activations
from fne.activations.sharing import convolve_plainly, obstacle, plan, share_crops
from tests.narrow import VGG16, VGG19, narrow_vgg, relative_difference, smooth_images


def assert_shares_exactly(network: Network, crops: str) -> None:
    (image,) = smooth_images(1)
    found = share_crops(network, crops, convolve_plainly)(image)
    assert len(found) == sum(layer.features for layer in network.layers)
    assert relative_difference(found, activations(network, CROPS[crops](image))) < 1e-6


@pytest.mark.parametrize("crops", ["ten", "five"])
@pytest.mark.parametrize("blocks", [VGG16, VGG19])
def test_shared_crops_give_what_the_crops_give_one_by_one(blocks, crops):
    assert_shares_exactly(narrow_vgg(blocks), crops)


@pytest.mark.parametrize("blocks", [VGG16, VGG16[:4], VGG16[:2], (1,), (2, 2, 3, 1)])
def test_a_network_may_end_with_any_convolution(blocks):
    assert_shares_exactly(narrow_vgg(blocks, units=0), "ten")


def test_activations_before_the_relu_are_shared_too():
    assert_shares_exactly(narrow_vgg(activations="pre_relu"), "ten")


def test_wide_layers_lose_no_digit():
    assert_shares_exactly(narrow_vgg((1, 1, 1, 1, 1), width=128, units=0), "five")


def test_a_relu_is_joined_with_its_convolution_unless_someone_needs_what_is_between():
    joined = plan(narrow_vgg())
    assert not any(isinstance(step.module, nn.ReLU) for step in joined)
    assert sum(step.kept for step in joined) == 15
    apart = plan(narrow_vgg(activations="pre_relu"))
    assert sum(isinstance(step.module, nn.ReLU) for step in apart) == 15
    assert all(step.kept == isinstance(step.module, nn.Conv2d | nn.Linear) for step in apart)


def test_sums_do_not_overflow_in_half_precision():
    network = narrow_vgg(units=0)
    (image,) = smooth_images(1)
    with torch.autocast("cpu", torch.float16):
        found = share_crops(network, "five", convolve_plainly)(image * 10)
    assert found.dtype == torch.float32
    assert relative_difference(found, activations(network, CROPS["five"](image * 10))) < 1e-2


def test_a_value_that_is_not_a_number_is_not_lost():
    (image,) = smooth_images(1)
    image[0, 100, 100] = torch.nan
    assert share_crops(narrow_vgg(), "ten", convolve_plainly)(image).isnan().any()


def with_module(index: int, module: nn.Module) -> Network:
    network = narrow_vgg()
    modules = network.modules | {str(index): module}
    return Network(modules, network.taps, network.layers)


def test_a_network_like_vgg_has_no_obstacle():
    assert obstacle(narrow_vgg(), "ten") is None


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
def test_a_module_that_does_not_keep_the_crops_aligned_is_an_obstacle(module):
    assert str(obstacle(with_module(2, module), "ten")).startswith(
        "2 is neither a 3x3 convolution of stride 1"
    )


def test_what_comes_after_the_crops_are_cut_out_is_no_obstacle():
    last_pool = max(
        int(name) for name, each in narrow_vgg().modules.items() if isinstance(each, nn.MaxPool2d)
    )
    assert obstacle(with_module(last_pool, nn.MaxPool2d(3, 2)), "ten") is None


def test_other_crops_are_an_obstacle():
    assert obstacle(narrow_vgg(), "center") == "crops 'center' do not overlap as those of five and ten do"


def test_so_many_convolutions_that_strips_meet_are_an_obstacle():
    assert "one convolution too many" in str(obstacle(narrow_vgg((100,), width=1), "ten"))
