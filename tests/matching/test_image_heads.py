import pytest
import torch

from fne.matching.image_heads import IMAGE_HEADS


@pytest.mark.parametrize("name", IMAGE_HEADS)
def test_every_head_maps_features_to_the_joint_space(name):
    assert IMAGE_HEADS[name](16, 8)(torch.randn(3, 16)).shape == (3, 8)


@pytest.mark.parametrize("name", IMAGE_HEADS)
def test_every_head_maps_nothing_to_nothing_at_first(name):
    assert not IMAGE_HEADS[name](16, 8)(torch.zeros(1, 16)).any()


def test_only_the_head_with_a_bias_has_one():
    assert {name: len(list(head(16, 8).parameters())) for name, head in IMAGE_HEADS.items()} == {
        "linear": 1,
        "linear_bias": 2,
    }
