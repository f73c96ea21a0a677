import numpy as np
import pytest
import torch

from fne.evaluation.metrics import numpy_ranks
from fne.evaluation.metrics.numpy_ranks import rank_in_numpy
from fne.evaluation.metrics.ranks import rank
from fne.matching.numpy_similarities import NUMPY_SIMILARITIES, cosine
from fne.matching.similarities import SIMILARITIES, find_similarity


def plain_ranks(scores: np.ndarray, counts: np.ndarray) -> tuple[list[int], list[int]]:
    owners = [image for image, count in enumerate(counts) for _ in range(count)]
    image_ranks, caption_ranks = [], []
    for image in range(len(counts)):
        best = max(scores[image, each] for each, owner in enumerate(owners) if owner == image)
        wrong = [scores[image, each] for each, owner in enumerate(owners) if owner != image]
        image_ranks.append(1 + sum(each >= best for each in wrong))
    for caption, owner in enumerate(owners):
        wrong = [scores[image, caption] for image in range(len(counts)) if image != owner]
        caption_ranks.append(1 + sum(each >= scores[owner, caption] for each in wrong))
    return image_ranks, caption_ranks


@pytest.mark.parametrize("block", [3, 16, 512])
def test_ranks_are_those_of_a_plain_loop_with_ties_counted_as_better(block, monkeypatch):
    monkeypatch.setattr(numpy_ranks, "BLOCK", block)
    generator = np.random.default_rng(1)
    counts = generator.integers(1, 6, 37)
    # Small integers: products are exact, and many scores are equal.
    images = generator.integers(-2, 3, (37, 4)).astype(np.float32)
    captions = generator.integers(-2, 3, (counts.sum(), 4)).astype(np.float32)
    image_ranks, caption_ranks = rank_in_numpy(images, captions, counts, cosine)
    expected = plain_ranks(images @ captions.T, counts)
    assert (image_ranks.tolist(), caption_ranks.tolist()) == expected


@pytest.mark.parametrize("name", SIMILARITIES)
def test_ranks_are_those_of_the_evaluation(name):
    generator = np.random.default_rng(2)
    counts = generator.integers(1, 4, 600)
    images = generator.normal(size=(600, 8)).astype(np.float32)
    captions = np.repeat(images, counts, axis=0) + generator.normal(size=(counts.sum(), 8)).astype(np.float32)
    owners = torch.from_numpy(np.repeat(np.arange(600), counts))
    similarity = find_similarity({"source": "imported", "similarity": name})
    expected = rank(torch.from_numpy(images), torch.from_numpy(captions), owners, similarity, 0)
    image_ranks, caption_ranks = rank_in_numpy(images, captions, counts, NUMPY_SIMILARITIES[name])
    assert image_ranks.tolist() == expected.image_ranks.tolist()
    assert caption_ranks.tolist() == expected.caption_ranks.tolist()


def test_vectors_that_are_all_alike_rank_last():
    vector = np.random.default_rng(0).normal(size=(1, 512)).astype(np.float32)
    images, captions = np.repeat(vector, 7, axis=0), np.repeat(vector, 13, axis=0)
    counts = np.array([2, 2, 2, 2, 2, 2, 1])
    image_ranks, caption_ranks = rank_in_numpy(images, captions, counts, cosine)
    assert image_ranks.tolist() == [12] * 6 + [13]
    assert caption_ranks.tolist() == [7] * 13
