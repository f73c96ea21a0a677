import itertools
import math

import pytest
import torch

from fne.matching import similarities
from fne.matching.similarities import (
    SIMILARITIES,
    exact_cosine,
    exact_euclidean,
    order_gradients,
    order_gradients_in_chunks,
    order_in_chunks,
    order_scores,
)

# The definitions, of the pairs of values of an image and a caption.
PLAIN = {
    "cosine": lambda pairs: sum(i * c for i, c in pairs),
    "euclidean": lambda pairs: -math.sqrt(sum((i - c) ** 2 for i, c in pairs) + 1e-4),
    "order": lambda pairs: -sum(max(0.0, c - i) ** 2 for i, c in pairs),
    "order_root": lambda pairs: -math.sqrt(sum(max(0.0, c - i) ** 2 for i, c in pairs)),
}


def vectors(count: int, dim: int, seed: int) -> torch.Tensor:
    return torch.randn(count, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("name", SIMILARITIES)
def test_scores_are_those_of_plain_loops(name):
    images, captions = vectors(4, 6, 0), vectors(7, 6, 1)
    expected = [
        [PLAIN[name](list(zip(image, caption, strict=True))) for caption in captions.tolist()]
        for image in images.tolist()
    ]
    found = SIMILARITIES[name](images, captions)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("name", SIMILARITIES)
def test_gradients_are_those_of_finite_differences(name):
    images, captions = vectors(3, 4, 1).requires_grad_(), vectors(2, 4, 2).requires_grad_()
    assert torch.autograd.gradcheck(SIMILARITIES[name], (images, captions))


@pytest.mark.parametrize("name", ["order", "order_root"])
def test_a_caption_below_its_image_in_every_dimension_scores_zero_and_has_no_gradient(name):
    image = torch.tensor([[0.5, 0.5]], requires_grad=True)
    captions = torch.tensor([[0.1, 0.5], [0.1, 0.9]], requires_grad=True)
    scores = SIMILARITIES[name](image, captions)
    assert scores[0, 0].item() == 0
    scores[0, 0].backward()
    assert image.grad.tolist() == [[0, 0]]
    assert captions.grad.tolist() == [[0, 0], [0, 0]]


def test_the_gradient_of_the_root_has_length_one_at_any_distance():
    image = torch.zeros(1, 2)
    captions = torch.tensor([[3e-20, 4e-20], [3.0, 4.0]], requires_grad=True)
    SIMILARITIES["order_root"](image, captions).sum().backward()
    torch.testing.assert_close(captions.grad, torch.tensor([[-0.6, -0.8]]).expand(2, 2), rtol=1e-4, atol=0)


@pytest.mark.parametrize("name", SIMILARITIES)
def test_nan_in_a_vector_gives_a_nan_score(name):
    images = torch.tensor([[0.0, torch.nan], [0.0, 0.0]])
    assert SIMILARITIES[name](images, torch.zeros(1, 2)).isnan().tolist() == [[True], [False]]


# Around the edges of tiles, of blocks of captions, and of vector registers.
SHAPES = [(1, 1, 1), (4, 2, 8), (5, 3, 7), (3, 33, 17), (9, 70, 40), (130, 65, 100)]
EMPTY = [(0, 3, 4), (3, 0, 4), (3, 4, 0), (0, 0, 0)]
TYPES = [torch.float32, torch.float64]


def order_inputs(shape: tuple[int, int, int], dtype: torch.dtype) -> list[torch.Tensor]:
    """Images, captions and the weights of their scores."""
    images, captions, dim = shape
    generator = torch.Generator().manual_seed(sum(shape))
    sizes = [(images, dim), (captions, dim), (images, captions)]
    return [torch.randn(size, generator=generator, dtype=dtype) for size in sizes]


def broadcast(images: torch.Tensor, captions: torch.Tensor) -> torch.Tensor:
    """Compute the definition with all differences at once."""
    return -(captions[None] - images[:, None]).clamp(min=0).square().sum(dim=2)


def expected_gradients(images, captions, weights):
    images, captions = images.clone().requires_grad_(), captions.clone().requires_grad_()
    broadcast(images, captions).backward(weights)
    return images.grad, captions.grad


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", SHAPES + EMPTY)
def test_scores_are_those_of_the_definition(shape, dtype):
    images, captions, _ = order_inputs(shape, dtype)
    expected = broadcast(images, captions)
    torch.testing.assert_close(order_scores(images, captions), expected)
    torch.testing.assert_close(order_in_chunks(images, captions), expected)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", SHAPES + EMPTY)
def test_gradients_are_those_of_the_definition(shape, dtype):
    inputs = order_inputs(shape, dtype)
    expected = expected_gradients(*inputs)
    torch.testing.assert_close(order_gradients(*inputs), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(order_gradients_in_chunks(*inputs), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("values", [1, 7 * 6, 3 * 7 * 6])
def test_the_size_of_chunks_does_not_matter(monkeypatch, values):
    monkeypatch.setattr(similarities, "CHUNK_VALUES", values)
    images, captions, weights = order_inputs((10, 7, 6), torch.float64)
    torch.testing.assert_close(order_in_chunks(images, captions), broadcast(images, captions))
    found = order_gradients_in_chunks(images, captions, weights)
    torch.testing.assert_close(found, expected_gradients(images, captions, weights))


def test_the_number_of_threads_changes_no_bit(monkeypatch):
    monkeypatch.setattr(similarities, "MIN_DIFFERENCES_PER_THREAD", 1)
    inputs = order_inputs((37, 53, 29), torch.float32)
    found = []
    for threads in (1, 2, 5, 100):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        found.append((order_scores(*inputs[:2]), *order_gradients(*inputs)))
    for first, other in itertools.pairwise(found):
        assert all(torch.equal(mine, its) for mine, its in zip(first, other, strict=True))


@pytest.mark.parametrize("others", range(10))
def test_a_gradient_has_the_bits_of_a_sum_over_the_other_vectors_in_their_order(others):
    generator = torch.Generator().manual_seed(others)
    images, captions = (torch.rand(count, 70, generator=generator) for count in (3, others))
    weights = torch.randn(3, others, generator=generator)
    expected = torch.zeros(3, 70)
    for number, caption in enumerate(captions):
        expected += 2 * weights[:, number, None] * (caption - images).clamp(min=0)
    assert torch.equal(order_gradients(images, captions, weights)[0], expected)


def test_the_score_of_a_pair_does_not_depend_on_the_pairs_around_it():
    images, captions, _ = order_inputs((7, 37, 29), torch.float32)
    scores = order_scores(images, captions)
    for i, c in itertools.product(range(7), range(37)):
        assert torch.equal(order_scores(images[i : i + 1], captions[c : c + 1])[0, 0], scores[i, c])


def test_non_contiguous_tensors_are_read_correctly():
    images, captions, weights = order_inputs((6, 5, 4), torch.float64)
    strided = torch.stack([images, -images], dim=2)[:, :, 0].requires_grad_()
    transposed = captions.T.contiguous().T.requires_grad_()
    assert not strided.is_contiguous()
    assert not transposed.is_contiguous()
    scores = SIMILARITIES["order"](strided, transposed)
    torch.testing.assert_close(scores, broadcast(images, captions))
    scores.backward(weights.T.contiguous().T)
    expected = expected_gradients(images, captions, weights)
    torch.testing.assert_close((strided.grad, transposed.grad), expected)


def test_half_precision_is_computed_in_plain_torch():
    inputs = [each.half() for each in order_inputs((3, 2, 4), torch.float32)]
    assert torch.equal(order_scores(*inputs[:2]), order_in_chunks(*inputs[:2]))
    found, expected = order_gradients(*inputs), order_gradients_in_chunks(*inputs)
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
def test_vectors_of_different_dimension_type_or_device_are_refused(images, captions):
    with pytest.raises(ValueError, match="must be vectors of one dimension, type and device, but are"):
        order_scores(images, captions)


@pytest.mark.parametrize(("scale", "offset"), [(1, 0), (100, 0), (1, 1000)])
def test_distances_of_long_imported_vectors_keep_their_digits(scale, offset):
    generator = torch.Generator().manual_seed(0)
    images = scale * torch.randn(5, 64, generator=generator) + offset
    captions = torch.cat([images, images + 0.01])
    scores = exact_euclidean(images, captions)
    expected = -(images.double()[:, None] - captions.double()[None]).norm(dim=2)
    torch.testing.assert_close(scores.double(), expected, rtol=1e-5, atol=0)
    assert not scores.diagonal().any()


def test_cosines_of_imported_vectors_are_those_of_vectors_of_length_one():
    images, captions = 50 * torch.randn(5, 8), torch.randn(7, 8)
    expected = torch.nn.functional.cosine_similarity(images[:, None], captions[None], dim=2)
    torch.testing.assert_close(exact_cosine(images, captions), expected)
    assert not exact_cosine(torch.zeros(1, 8), captions).any()
