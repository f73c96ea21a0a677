import numpy as np
import pytest
import torch
from torch import nn

from fne.matching.optimizers import OPTIMIZERS, flatten, restore


def steps(name: str, gradients: list[float]) -> list[float]:
    """Return how far one weight moves in each step, as a multiple of the learning rate."""
    weight = nn.Parameter(torch.zeros(1))
    optimizer = OPTIMIZERS[name]([weight], 0.01)
    moved = []
    for gradient in gradients:
        before = weight.item()
        weight.grad = torch.tensor([gradient])
        optimizer.step()
        moved.append((before - weight.item()) / 0.01)
    return moved


def test_the_first_steps_of_adam_are_as_long_as_its_rate():
    assert steps("adam", [3.0] * 10) == pytest.approx([1.0] * 10, rel=1e-4)


def test_the_first_steps_without_correction_are_those_of_the_published_codes():
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


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_restored_optimizer_goes_on_bit_for_bit(name):
    def gradient(number):
        return torch.randn(5, generator=torch.Generator().manual_seed(number))

    def advance(weight, optimizer, numbers):
        for number in numbers:
            weight.grad = gradient(number)
            optimizer.step()

    whole = nn.Parameter(torch.zeros(5))
    advance(whole, OPTIMIZERS[name]([whole], 0.01), range(8))
    half = nn.Parameter(torch.zeros(5))
    before = OPTIMIZERS[name]([half], 0.01)
    advance(half, before, range(4))
    again = OPTIMIZERS[name]([half], 0.01)
    restore(again, flatten(before))
    advance(half, again, range(4, 8))
    assert torch.equal(whole, half)
