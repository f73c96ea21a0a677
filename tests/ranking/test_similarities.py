import math

import pytest
import torch

from fne.ranking.similarities import SIMILARITIES


def plain_cosine(image: list[float], caption: list[float]) -> float:
    return sum(i * c for i, c in zip(image, caption, strict=True))


def plain_order(image: list[float], caption: list[float]) -> float:
    return -sum(max(0.0, c - i) ** 2 for i, c in zip(image, caption, strict=True))


def plain_order_root(image: list[float], caption: list[float]) -> float:
    return -math.sqrt(-plain_order(image, caption))


PLAIN = {"cosine": plain_cosine, "order": plain_order, "order_root": plain_order_root}


def vectors(count: int, dim: int, seed: int) -> torch.Tensor:
    return torch.randn(count, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("name", SIMILARITIES)
def test_scores_are_those_of_plain_loops(name):
    images, captions = vectors(4, 6, 0), vectors(7, 6, 1)
    expected = [[PLAIN[name](image, caption) for caption in captions.tolist()] for image in images.tolist()]
    found = SIMILARITIES[name](images, captions)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("name", SIMILARITIES)
def test_gradients_are_those_of_finite_differences(name):
    images, captions = vectors(3, 4, 1).requires_grad_(), vectors(2, 4, 2).requires_grad_()
    assert torch.autograd.gradcheck(SIMILARITIES[name], (images, captions))


@pytest.mark.parametrize("name", ["order", "order_root"])
def test_a_caption_below_its_image_everywhere_fits_perfectly_and_pulls_at_nothing(name):
    image = torch.tensor([[0.5, 0.5]], requires_grad=True)
    captions = torch.tensor([[0.1, 0.5], [0.1, 0.9]], requires_grad=True)
    scores = SIMILARITIES[name](image, captions)
    assert scores[0, 0].item() == 0
    scores[0, 0].backward()
    assert image.grad.tolist() == [[0, 0]]
    assert captions.grad.tolist() == [[0, 0], [0, 0]]


def test_the_root_pulls_with_the_same_force_from_near_and_far():
    image = torch.zeros(1, 2)
    captions = torch.tensor([[3e-20, 4e-20], [3.0, 4.0]], requires_grad=True)
    SIMILARITIES["order_root"](image, captions).sum().backward()
    torch.testing.assert_close(captions.grad, torch.tensor([[-0.6, -0.8]]).expand(2, 2), rtol=1e-4, atol=0)


@pytest.mark.parametrize("name", SIMILARITIES)
def test_a_value_that_is_not_a_number_is_not_hidden(name):
    images = torch.tensor([[0.0, torch.nan], [0.0, 0.0]])
    assert SIMILARITIES[name](images, torch.zeros(1, 2)).isnan().tolist() == [[True], [False]]
