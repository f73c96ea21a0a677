import numpy as np
import pytest
import torch
from torch import nn

from fne.training.optimizers import CLIPS, OPTIMIZERS, clip_gradients, flatten, restore
from fne.training.task import ParameterGroup
from tests.support.variants import settings_of


def made(name: str, weight: nn.Parameter) -> torch.optim.Optimizer:
    return OPTIMIZERS[name]([ParameterGroup("weights", [weight])], 0.01, settings_of(name))


def steps(name: str, gradients: list[float]) -> list[float]:
    """Return how far one weight moves in each step, as a multiple of the learning rate."""
    weight = nn.Parameter(torch.zeros(1))
    optimizer = made(name, weight)
    moved = []
    for gradient in gradients:
        before = weight.item()
        weight.grad = torch.tensor([gradient])
        optimizer.step()
        moved.append((before - weight.item()) / 0.01)
    return moved


def test_the_first_steps_without_correction_are_those_of_the_published_codes():
    assert steps("adam", [3.0] * 10) == pytest.approx([1.0] * 10, rel=1e-4)
    moved = steps("adam_uncorrected", [3.0] * 500)
    assert [round(moved[number - 1], 1) for number in (1, 10, 500)] == [3.5, 6.5, 1.6]


def test_without_correction_is_the_published_formula():
    generator = np.random.default_rng(0)
    gradients = generator.normal(size=50).tolist()
    expected, first, second = [], 0.0, 0.0
    for number, gradient in enumerate(gradients, start=1):
        first = 0.1 * gradient + 0.9 * first
        second = 0.001 * gradient**2 + 0.999 * second
        rate = (1 - 0.001**number) ** 0.5 / (1 - 0.1**number)
        expected.append(rate * first / (second**0.5 + 1e-8))
    assert steps("adam_uncorrected", gradients) == pytest.approx(expected, rel=1e-3, abs=1e-4)


def test_sgd_is_matconvnets_update_with_nesterov_and_decay():
    """Transcribed from `accumulateGradients` of MatConvNet's trainer, for two groups with rates of their own."""
    generator = np.random.default_rng(1)
    weights = generator.normal(size=(2, 3))
    gradients = generator.normal(size=(10, 2, 3))
    rates, decay, momentum = np.array([[0.01], [0.001]]), 0.05, 0.9
    expected, velocity = weights.copy(), np.zeros_like(weights)
    for gradient in gradients:
        decayed = gradient + decay * expected
        velocity = momentum * velocity - decayed
        expected += rates * (momentum * velocity - decayed)
    parameters = [nn.Parameter(torch.tensor(row)) for row in weights]
    groups = [
        ParameterGroup("weights", parameters[:1]),
        ParameterGroup("classifier", parameters[1:], rate=0.1),
    ]
    own = settings_of("sgd_nesterov", momentum=momentum, weight_decay=decay)
    optimizer = OPTIMIZERS["sgd_nesterov"](groups, 0.01, own)
    for gradient in gradients:
        for parameter, row in zip(parameters, gradient, strict=True):
            parameter.grad = torch.tensor(row)
        optimizer.step()
    found = np.stack([parameter.detach().numpy() for parameter in parameters])
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "first"), [("rmsprop", None), ("rmsprop_inside", 0.0), ("rmsprop_inside", 1.0)]
)
def test_rmsprop_has_epsilon_where_it_says(name, first):
    """Written from the published formulas: torch's, NeuralTalk's (starts at 0) and TensorFlow's (starts at 1)."""
    gradients = np.random.default_rng(2).normal(size=20) * 1e-3
    changes = {"decay": 0.9, "epsilon": 1e-6} | ({} if first is None else {"first": first})
    weight = nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimizer = OPTIMIZERS[name]([ParameterGroup("weights", [weight])], 0.01, settings_of(name, **changes))
    expected, squares = 0.0, first or 0.0
    for gradient in gradients:
        squares = 0.9 * squares + 0.1 * gradient**2
        scale = squares**0.5 + 1e-6 if first is None else (squares + 1e-6) ** 0.5
        expected -= 0.01 * gradient / scale
        weight.grad = torch.tensor([gradient])
        optimizer.step()
    assert weight.item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_restored_optimizer_continues_bit_for_bit(name):
    def gradient(number):
        return torch.randn(5, generator=torch.Generator().manual_seed(number))

    def advance(weight, optimizer, numbers):
        for number in numbers:
            weight.grad = gradient(number)
            optimizer.step()

    whole = nn.Parameter(torch.zeros(5))
    advance(whole, made(name, whole), range(8))
    half = nn.Parameter(torch.zeros(5))
    before = made(name, half)
    advance(half, before, range(4))
    again = made(name, half)
    restore(again, flatten(before))
    advance(half, again, range(4, 8))
    assert torch.equal(whole, half)


@pytest.fixture
def parameters():
    made = [nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(1))]
    made[0].grad, made[1].grad = torch.tensor([3.0, 4.0]), torch.tensor([1.0])
    return made


@pytest.mark.parametrize(
    ("name", "limit", "groups", "expected"),
    [
        ("global", 2.0, [2], [3 * 2 / 26**0.5, 4 * 2 / 26**0.5, 2 / 26**0.5]),  # the direction stays
        ("tensor", 2.0, [2], [1.2, 1.6, 1.0]),  # the long one is cut
        ("group", 2.0, [1, 1, 0], [1.2, 1.6, 1.0]),
        ("group", 2.0, [2], [3 * 2 / 26**0.5, 4 * 2 / 26**0.5, 2 / 26**0.5]),
        ("element", 3.5, [2], [3.0, 3.5, 1.0]),
        *((name, 100.0, [2], [3.0, 4.0, 1.0]) for name in CLIPS),
    ],
)
def test_a_clip_shortens_what_its_name_says_and_returns_the_length_before(
    parameters, name, limit, groups, expected
):
    left = iter(parameters)
    length = CLIPS[name]([[next(left) for _ in range(size)] for size in groups], limit)
    assert length.item() == pytest.approx(26**0.5)
    assert torch.cat([each.grad for each in parameters]).tolist() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("name", CLIPS)
def test_a_gradient_that_is_not_finite_shows_in_the_length(parameters, name):
    parameters[1].grad[0] = float("inf")
    assert not CLIPS[name]([parameters], 2.0).isfinite()


def test_no_clipping_still_returns_the_norm(parameters):
    assert clip_gradients([parameters], 0.0, "global").item() == pytest.approx(26**0.5)
    assert parameters[0].grad.tolist() == [3.0, 4.0]


def test_a_group_moves_at_its_own_rate():
    fast, slow = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))
    groups = [
        ParameterGroup("fast", [fast]),
        ParameterGroup("slow", [slow], rate=0.1),
        ParameterGroup("none", []),
    ]
    for name in OPTIMIZERS:
        fast.data.zero_()
        slow.data.zero_()
        optimizer = OPTIMIZERS[name](groups, 0.01, settings_of(name))
        fast.grad, slow.grad = torch.ones(1), torch.ones(1)
        optimizer.step()
        assert slow.item() == pytest.approx(0.1 * fast.item(), rel=1e-4)


@pytest.mark.parametrize("name", ["adam", "sgd_nesterov"])
def test_a_restored_optimizer_has_the_memory_layout_of_its_weights(name):
    """Fused optimizers read side by side in memory, and a checkpoint holds contiguous tensors."""
    torch.manual_seed(0)
    start = torch.rand(4, 3, 2, 2)
    gradients = [torch.rand(4, 3, 2, 2) for _ in range(4)]

    def step(weight, optimizer, gradient):
        weight.grad = torch.empty_like(weight).copy_(gradient)
        optimizer.step()

    def new():
        weight = nn.Parameter(start.contiguous(memory_format=torch.channels_last))
        return weight, made(name, weight)

    weight, optimizer = new()
    for gradient in gradients[:2]:
        step(weight, optimizer, gradient)
    resumed, again = new()
    with torch.no_grad():
        resumed.copy_(weight)
    kept = flatten(optimizer).items()
    restore(again, {key: value.clone(memory_format=torch.contiguous_format) for key, value in kept})
    for gradient in gradients[2:]:
        step(weight, optimizer, gradient)
        step(resumed, again, gradient)
    assert torch.equal(weight, resumed)
