import math

import pytest
import torch
from torch.func import functional_call

from fne.core.distributed_layers import Step
from fne.core.errors import InputError
from fne.matching.instance_loss import Instance, check_memory, class_numbers, classifier_bytes, new_instance
from fne.matching.settings import InstanceLoss


def instance(dropout: float = 0.0, bias: bool = True, classes: int = 5, dim: int = 4) -> Instance:
    torch.manual_seed(0)
    return Instance(classes, dim, bias, dropout).double()


def rows(count: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(count, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def mean(loss: Instance, vectors: torch.Tensor, labels: torch.Tensor, step: Step | None = None):
    """The loss of one path."""
    [(found, _)] = loss([vectors], labels, step)
    return found


@pytest.mark.parametrize("bias", [False, True])
def test_the_loss_is_that_of_plain_loops(bias):
    loss, vectors, labels = instance(bias=bias), rows(6), [0, 4, 2, 2, 1, 3]
    total = 0.0
    for vector, label in zip(vectors.tolist(), labels, strict=True):
        scores = [
            sum(weight * max(0.0, value) for weight, value in zip(row, vector, strict=True))
            + (loss.bias[number].item() if bias else 0)
            for number, row in enumerate(loss.weight.tolist())
        ]
        total += math.log(sum(math.exp(each) for each in scores)) - scores[label]
    assert mean(loss, vectors, torch.tensor(labels)).item() == pytest.approx(total / 6, rel=1e-12)


def test_gradients_are_those_of_finite_differences():
    loss, labels = instance(), torch.tensor([0, 4, 2])

    def value(vectors, weight, bias):
        return functional_call(loss, {"weight": weight, "bias": bias}, ([vectors], labels))[0][0]

    arguments = (rows(3), loss.weight.detach(), loss.bias.detach())
    assert torch.autograd.gradcheck(value, [each.clone().requires_grad_() for each in arguments])


def test_both_paths_share_one_classifier_whose_gradient_is_the_sum_of_theirs():
    loss, labels = instance(), torch.tensor([0, 4, 2])
    images, captions = rows(3, 1), rows(3, 2)
    gradients = []
    for paths in ([images], [captions], [images, captions]):
        loss.zero_grad()
        sum(each for each, _ in loss(paths, labels)).backward()
        gradients.append(loss.weight.grad.clone())
    assert torch.allclose(gradients[0] + gradients[1], gradients[2], rtol=0, atol=1e-14)
    assert [name for name, _ in loss.named_parameters()] == ["weight", "bias"]
    together = [each for each, _ in loss([images, captions], labels)]
    apart = [mean(loss, images, labels), mean(loss, captions, labels)]
    assert torch.allclose(torch.stack(together), torch.stack(apart), rtol=0, atol=1e-14)


def test_the_top_1_error_is_the_fraction_of_rows_whose_likeliest_class_is_another():
    loss, vectors = instance(), rows(6)
    likeliest = (vectors.relu() @ loss.weight.T + loss.bias).argmax(dim=1)
    labels = likeliest.clone()
    labels[:2] = (labels[:2] + 1) % 5
    [(_, error)] = loss([vectors], labels)
    assert error.item() == pytest.approx(2 / 6)


def test_dropout_comes_after_relu_from_the_generator_of_the_step():
    loss, vectors, labels = instance(dropout=0.75), rows(6), torch.arange(6) % 5
    kept = torch.rand(6, 4, generator=torch.Generator().manual_seed(7)) >= 0.75
    expected = mean(instance(), vectors.relu() * kept * 4, labels)
    step = Step(torch.Generator().manual_seed(7), 6, slice(0, 6))
    assert mean(loss, vectors, labels, step).item() == pytest.approx(expected.item(), rel=1e-12)
    with pytest.raises(ValueError, match="needs the step"):
        mean(loss, vectors, labels)
    assert torch.allclose(mean(loss.eval(), vectors, labels), mean(instance(), vectors, labels), rtol=1e-12)


def test_first_weights_are_a_tenth_of_those_of_other_layers():
    weight = instance(classes=400, dim=300).weight
    assert 0.0999 * math.sqrt(3 / 300) < weight.abs().max().item() <= 0.1 * math.sqrt(3 / 300)


def test_classes_follow_the_sorted_ids():
    assert class_numbers(["10.jpg", "2.jpg", "1.jpg"]) == {"1.jpg": 0, "10.jpg": 1, "2.jpg": 2}


def test_too_large_a_classifier_is_refused_with_the_figures():
    takes = "classifier of 113,287 images and 2,048 dimensions takes 2.9 GB with its gradient and momentum, "
    wanted = classifier_bytes(113_287, 2048, batch=32)
    assert check_memory(113_287, 2048, wanted, free=3 * 10**9).endswith(f"{takes}3.0 GB are free")
    with pytest.raises(InputError, match=rf"{takes}1\.9 GB are free; lower train\.embed_dim, or"):
        check_memory(113_287, 2048, wanted, free=19 * 10**8)


def test_the_memory_covers_weights_gradients_momentum_and_scores():
    loss = Instance(50, 8, True, 0.0)
    weights = sum(each.numel() * each.element_size() for each in loss.parameters())
    scores = 4 * 2 * 4 * 50 * 4
    assert classifier_bytes(50, 8, 4, bias=True) == 3 * weights + scores
    assert classifier_bytes(50, 8, 4, bias=True, moments=2, best=True) == 5 * weights + scores


def test_the_seed_decides_the_first_weights():
    settings = InstanceLoss(classes=0, dropout=0.5, bias=False, bias_rate=2.0)
    first, again, other = (new_instance(5, 4, settings, seed).weight for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
