import math

import pytest
import torch

from fne.describing.sequence_loss import perplexity, word_losses


def drawn(seed=0, positions=7, units=4, outputs=5):
    torch.manual_seed(seed)
    states, weight, bias = (
        torch.randn(shape, dtype=torch.float64, requires_grad=True)
        for shape in ((positions, units), (outputs, units), (outputs,))
    )
    return states, weight, bias, torch.randint(outputs, (positions,))


def test_losses_and_gradients_are_those_of_torch():
    *inputs, targets = drawn()
    scale = torch.randn(7, dtype=torch.float64)
    states, weight, bias = inputs
    ours = word_losses(states, weight, bias, targets)
    theirs = torch.nn.functional.cross_entropy(states @ weight.T + bias, targets, reduction="none")
    assert torch.allclose(ours, theirs)
    for one, other in zip(
        torch.autograd.grad((ours * scale).sum(), inputs),
        torch.autograd.grad((theirs * scale).sum(), inputs),
        strict=True,
    ):
        assert torch.allclose(one, other)


def test_losses_are_those_of_plain_loops():
    states, weight, bias, targets = drawn(1)
    for position, loss in enumerate(word_losses(states, weight, bias, targets).tolist()):
        logits = [
            b.item() + sum((w * s).item() for w, s in zip(row, states[position], strict=True))
            for row, b in zip(weight, bias, strict=True)
        ]
        expected = math.log(sum(math.exp(value) for value in logits)) - logits[targets[position]]
        assert loss == pytest.approx(expected)


def test_gradients_are_those_of_finite_differences():
    *inputs, targets = drawn(2)
    assert torch.autograd.gradcheck(lambda *given: word_losses(*given, targets), inputs)


def test_large_logits_give_finite_losses():
    weight = torch.tensor([[1e4], [-1e4]], requires_grad=True)
    losses = word_losses(torch.ones(1, 1), weight, torch.zeros(2), torch.tensor([1]))
    losses.sum().backward()
    assert losses.item() == pytest.approx(2e4)
    assert torch.isfinite(weight.grad).all()


def test_perplexity_of_even_odds_is_the_number_of_words():
    assert perplexity(10 * math.log(7), 10) == pytest.approx(7)
