import pytest
import torch
from torch import nn

from fne.matching.clipping import CLIPS


@pytest.fixture
def parameters():
    made = [nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(1))]
    made[0].grad, made[1].grad = torch.tensor([3.0, 4.0]), torch.tensor([1.0])
    return made


@pytest.mark.parametrize("name", CLIPS)
def test_the_length_before_is_returned(parameters, name):
    assert CLIPS[name](parameters, 2.0).item() == pytest.approx(26**0.5)


def test_a_global_clip_keeps_the_direction(parameters):
    CLIPS["global"](parameters, 2.0)
    scale = 2 / 26**0.5
    assert parameters[0].grad.tolist() == pytest.approx([3 * scale, 4 * scale], rel=1e-5)
    assert parameters[1].grad.tolist() == pytest.approx([scale], rel=1e-5)


def test_a_clip_by_tensor_cuts_only_the_long_ones(parameters):
    CLIPS["tensor"](parameters, 2.0)
    assert parameters[0].grad.tolist() == pytest.approx([1.2, 1.6], rel=1e-5)
    assert parameters[1].grad.tolist() == [1.0]


@pytest.mark.parametrize("name", CLIPS)
def test_short_gradients_stay(parameters, name):
    CLIPS[name](parameters, 100.0)
    assert parameters[0].grad.tolist() == [3.0, 4.0]


@pytest.mark.parametrize("name", CLIPS)
def test_a_gradient_that_is_not_finite_shows_in_the_length(parameters, name):
    parameters[1].grad[0] = float("inf")
    assert not CLIPS[name](parameters, 2.0).isfinite()
