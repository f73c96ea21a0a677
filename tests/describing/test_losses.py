import math

import pytest
import torch

from fne.describing.losses import MULTILABEL_LOSSES, logistic, perplexity, softmax, word_losses


def drawn(seed, images=7, labels=9):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(images, labels, generator=generator, dtype=torch.float64)
    return logits, torch.rand(images, labels, generator=generator) < torch.rand(1, generator=generator)


def plain_warp(logits, labels):
    total = 0.0
    wrong = [score for score, label in zip(logits, labels, strict=True) if not label]
    for score, label in zip(logits, labels, strict=True):
        if label:
            violations = [1 - score + other for other in wrong if 1 - score + other > 0]
            if violations:
                weight = sum(1 / rank for rank in range(1, len(violations) + 1))
                total += weight * sum(violations) / len(violations)
    return total


def plain_softmax(logits, labels):
    true = [score for score, label in zip(logits, labels, strict=True) if label]
    normalizer = math.log(sum(math.exp(score) for score in logits))
    return -sum(score - normalizer for score in true) / len(true) if true else 0.0


def plain_logistic(logits, labels):
    return sum(math.log(1 + math.exp(-s if y else s)) for s, y in zip(logits, labels, strict=True))


PLAIN = {"logistic": plain_logistic, "softmax": plain_softmax, "warp": plain_warp}


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("name", MULTILABEL_LOSSES)
def test_a_loss_is_that_of_plain_loops(name, seed):
    logits, labels = drawn(seed)
    expected = [PLAIN[name](*row) for row in zip(logits.tolist(), labels.tolist(), strict=True)]
    assert MULTILABEL_LOSSES[name](logits, labels).tolist() == pytest.approx(expected)


def test_logistic_is_the_summed_loss_of_torch():
    logits, labels = drawn(0)
    expected = torch.nn.BCEWithLogitsLoss(reduction="sum")(logits, labels.double())
    assert logistic(logits, labels).sum().item() == pytest.approx(expected.item())


def test_softmax_is_the_cross_entropy_of_torch_with_soft_targets():
    logits, labels = drawn(1)
    labels[:, 0] = True
    targets = labels / labels.sum(dim=1, keepdim=True)
    expected = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
    assert torch.allclose(softmax(logits, labels), expected)


@pytest.mark.parametrize("name", MULTILABEL_LOSSES)
def test_gradients_are_those_of_finite_differences(name):
    logits, labels = drawn(3, images=4, labels=5)
    loss = MULTILABEL_LOSSES[name]
    assert torch.autograd.gradcheck(lambda scores: loss(scores, labels), logits.requires_grad_())


@pytest.mark.parametrize("name", ["softmax", "warp"])
def test_an_image_without_labels_teaches_nothing(name):
    logits = torch.randn(2, 4, requires_grad=True)
    values = MULTILABEL_LOSSES[name](logits, torch.zeros(2, 4))
    assert values.tolist() == [0, 0]
    values.sum().backward()
    assert not logits.grad.any()


@pytest.mark.parametrize("name", MULTILABEL_LOSSES)
def test_large_logits_give_finite_losses(name):
    logits = torch.tensor([[1000.0, -1000.0]])
    assert torch.isfinite(MULTILABEL_LOSSES[name](logits, torch.tensor([[0, 1]]))).all()


@pytest.mark.parametrize("name", MULTILABEL_LOSSES)
def test_an_image_has_the_same_loss_alone_and_in_a_batch(name):
    logits, labels = drawn(5)
    loss = MULTILABEL_LOSSES[name]
    alone = [loss(*pair) for pair in zip(logits.split(1), labels.split(1), strict=True)]
    assert torch.allclose(loss(logits, labels), torch.cat(alone))


def drawn_words(seed=0, positions=7, units=4, outputs=5):
    torch.manual_seed(seed)
    states, weight, bias = (
        torch.randn(shape, dtype=torch.float64, requires_grad=True)
        for shape in ((positions, units), (outputs, units), (outputs,))
    )
    return states, weight, bias, torch.randint(outputs, (positions,))


def test_losses_and_gradients_are_those_of_torch():
    *inputs, targets = drawn_words()
    scale = torch.randn(7, dtype=torch.float64)
    states, weight, bias = inputs
    ours = word_losses(states, weight, bias, targets)
    theirs = torch.nn.functional.cross_entropy(states @ weight.T + bias, targets, reduction="none")
    assert torch.allclose(ours, theirs)
    gradients = [torch.autograd.grad((each * scale).sum(), inputs) for each in (ours, theirs)]
    assert all(torch.allclose(one, other) for one, other in zip(*gradients, strict=True))


def test_losses_are_those_of_plain_loops():
    states, weight, bias, targets = drawn_words(1)
    for position, loss in enumerate(word_losses(states, weight, bias, targets).tolist()):
        logits = [
            b.item() + sum((w * s).item() for w, s in zip(row, states[position], strict=True))
            for row, b in zip(weight, bias, strict=True)
        ]
        expected = math.log(sum(math.exp(value) for value in logits)) - logits[targets[position]]
        assert loss == pytest.approx(expected)


def test_large_logits_give_finite_losses_of_words():
    weight = torch.tensor([[1e4], [-1e4]], requires_grad=True)
    losses = word_losses(torch.ones(1, 1), weight, torch.zeros(2), torch.tensor([1]))
    losses.sum().backward()
    assert losses.item() == pytest.approx(2e4)
    assert torch.isfinite(weight.grad).all()


def test_perplexity_of_even_odds_is_the_number_of_words():
    assert perplexity(10 * math.log(7), 10) == pytest.approx(7)
