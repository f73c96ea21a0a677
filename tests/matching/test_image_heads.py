import pytest
import torch

from fne.matching.image_heads import IMAGE_HEADS
from tests.support.variants import settings_of


def new_head(name):
    return IMAGE_HEADS[name](16, 8, settings_of(name)).eval()


@pytest.mark.parametrize("name", IMAGE_HEADS)
def test_every_head_maps_features_to_the_joint_space(name):
    assert new_head(name)(torch.randn(3, 16)).shape == (3, 8)


@pytest.mark.parametrize("name", IMAGE_HEADS)
def test_every_new_head_maps_zeros_to_zeros(name):
    assert not new_head(name)(torch.zeros(1, 16)).any()


def test_weights_and_biases_are_those_that_the_papers_list():
    assert {name: [*new_head(name).state_dict()] for name in ("linear", "linear_bias")} == {
        "linear": ["weight"],
        "linear_bias": ["weight", "bias"],
    }
    normalized = {
        name: [key for key in new_head(name).state_dict() if key.endswith("running_var")]
        for name in ("mlp", "mlp_bn_first")
    }
    assert normalized == {"mlp": ["norms.1.running_var"], "mlp_bn_first": ["norms.0.running_var"]}
