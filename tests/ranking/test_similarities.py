import pytest
import torch

from fne.ranking.similarities import SIMILARITIES


def plain_cosine(image: list[float], caption: list[float]) -> float:
    return sum(i * c for i, c in zip(image, caption, strict=True))


def plain_order(image: list[float], caption: list[float]) -> float:
    return -sum(max(0.0, c - i) ** 2 for i, c in zip(image, caption, strict=True))


PLAIN = {"cosine": plain_cosine, "order": plain_order}


@pytest.mark.parametrize("name", SIMILARITIES)
def test_scores_are_those_of_plain_loops(name):
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(4, 6, generator=generator, dtype=torch.float64)
    captions = torch.randn(7, 6, generator=generator, dtype=torch.float64)
    expected = [[PLAIN[name](image, caption) for caption in captions.tolist()] for image in images.tolist()]
    assert torch.allclose(SIMILARITIES[name](images, captions), torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("name", SIMILARITIES)
def test_gradients_are_those_of_finite_differences(name):
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(3, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    captions = torch.randn(2, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(SIMILARITIES[name], (images, captions))


def test_a_caption_below_its_image_everywhere_fits_perfectly_in_order():
    assert SIMILARITIES["order"](torch.tensor([[0.5, 0.5]]), torch.tensor([[0.1, 0.5]])).tolist() == [[0.0]]
