import itertools

import pytest
import torch

from fne.ranking import order, order_chunks
from fne.ranking.order import order_gradients, order_scores
from fne.ranking.similarities import SIMILARITIES

# Around the edges of tiles, of blocks of captions, and of vector registers.
SHAPES = [(1, 1, 1), (4, 2, 8), (5, 3, 7), (3, 33, 17), (9, 70, 40), (130, 65, 100)]
EMPTY = [(0, 3, 4), (3, 0, 4), (3, 4, 0), (0, 0, 0)]
TYPES = [torch.float32, torch.float64]


def vectors(
    shape: tuple[int, int, int], dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Images, captions and the weights of their scores."""
    images, captions, dim = shape
    generator = torch.Generator().manual_seed(sum(shape))
    sizes = [(images, dim), (captions, dim), (images, captions)]
    first, second, weights = (torch.randn(size, generator=generator, dtype=dtype) for size in sizes)
    return first, second, weights


def broadcast(images: torch.Tensor, captions: torch.Tensor) -> torch.Tensor:
    """The definition, with all differences at once."""
    return -(captions[None] - images[:, None]).clamp(min=0).square().sum(dim=2)


def expected_gradients(images, captions, weights):
    images, captions = images.clone().requires_grad_(), captions.clone().requires_grad_()
    broadcast(images, captions).backward(weights)
    return images.grad, captions.grad


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", SHAPES + EMPTY)
def test_scores_are_those_of_the_definition(shape, dtype):
    images, captions, _ = vectors(shape, dtype)
    expected = broadcast(images, captions)
    torch.testing.assert_close(order_scores(images, captions), expected)
    torch.testing.assert_close(order_chunks.score(images, captions), expected)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", SHAPES + EMPTY)
def test_gradients_are_those_of_the_definition(shape, dtype):
    inputs = vectors(shape, dtype)
    expected = expected_gradients(*inputs)
    torch.testing.assert_close(order_gradients(*inputs), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(order_chunks.gradients(*inputs), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("values", [1, 7 * 6, 3 * 7 * 6])
def test_the_size_of_chunks_does_not_matter(monkeypatch, values):
    monkeypatch.setattr(order_chunks, "VALUES", values)
    images, captions, weights = vectors((10, 7, 6), torch.float64)
    torch.testing.assert_close(order_chunks.score(images, captions), broadcast(images, captions))
    torch.testing.assert_close(
        order_chunks.gradients(images, captions, weights), expected_gradients(images, captions, weights)
    )


def test_threads_change_no_bit(monkeypatch):
    monkeypatch.setattr(order, "LEAST_SHARE", 1)
    inputs = vectors((37, 53, 29), torch.float32)
    found = []
    for threads in (1, 2, 5, 100):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        found.append((order_scores(*inputs[:2]), *order_gradients(*inputs)))
    for first, other in itertools.pairwise(found):
        assert all(torch.equal(mine, its) for mine, its in zip(first, other, strict=True))


def test_the_score_of_a_pair_does_not_depend_on_the_pairs_around_it():
    images, captions, _ = vectors((7, 37, 29), torch.float32)
    scores = order_scores(images, captions)
    for i, c in itertools.product(range(7), range(37)):
        assert torch.equal(order_scores(images[i : i + 1], captions[c : c + 1])[0, 0], scores[i, c])


def test_memory_that_is_not_contiguous_is_read_rightly():
    images, captions, weights = vectors((6, 5, 4), torch.float64)
    apart = torch.stack([images, -images], dim=2)[:, :, 0].requires_grad_()
    turned = captions.T.contiguous().T.requires_grad_()
    assert not apart.is_contiguous()
    assert not turned.is_contiguous()
    scores = SIMILARITIES["order"](apart, turned)
    torch.testing.assert_close(scores, broadcast(images, captions))
    scores.backward(weights.T.contiguous().T)
    expected = expected_gradients(images, captions, weights)
    torch.testing.assert_close((apart.grad, turned.grad), expected)


def test_other_kinds_of_numbers_go_through_plain_torch():
    images, captions, weights = (each.half() for each in vectors((3, 2, 4), torch.float32))
    assert torch.equal(order_scores(images, captions), order_chunks.score(images, captions))
    found, expected = (
        order_gradients(images, captions, weights),
        order_chunks.gradients(images, captions, weights),
    )
    assert all(torch.equal(mine, its) for mine, its in zip(found, expected, strict=True))


@pytest.mark.parametrize(
    ("images", "captions"),
    [
        (torch.zeros(2, 3), torch.zeros(2, 4)),
        (torch.zeros(2, 3), torch.zeros(2, 3, dtype=torch.float64)),
        (torch.zeros(3), torch.zeros(3)),
        (torch.zeros(2, 3), torch.zeros(2, 3, device="meta")),
    ],
)
def test_vectors_that_do_not_fit_each_other_are_refused(images, captions):
    with pytest.raises(ValueError, match="must be vectors of one dimension, type and device, but are"):
        order_scores(images, captions)
