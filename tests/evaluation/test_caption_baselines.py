import math
from collections import Counter

import numpy as np
import pytest

from fne.core.errors import InputError
from fne.evaluation.caption_baselines import (
    consensus_captions,
    constant_caption,
    nearest_captions,
)


def drawn_captions(seed, images=8):
    generator = np.random.default_rng(seed)
    return [
        [
            " ".join(f"w{int(number)}" for number in 12 * generator.random(generator.integers(1, 9)) ** 2)
            for _ in range(generator.integers(1, 5))
        ]
        for _ in range(images)
    ]


def plain_agreements(members, captions):
    """The sum of similarities of each caption to the others, pair by pair."""

    def grams(caption, n):
        words = caption.split()
        return Counter(tuple(words[start : start + n]) for start in range(len(words) - n + 1))

    frequency = Counter(
        gram
        for each in captions
        for gram in {gram for caption in each for n in range(1, 5) for gram in grams(caption, n)}
    )

    def vector(caption, n):
        weights = {
            gram: count * math.log(len(captions) / frequency[gram])
            for gram, count in grams(caption, n).items()
        }
        norm = math.sqrt(sum(weight**2 for weight in weights.values())) or 1.0
        return {gram: weight / norm for gram, weight in weights.items()}

    def similarity(one, other):
        return sum(
            weight * vector(other, n).get(gram, 0.0)
            for n in range(1, 5)
            for gram, weight in vector(one, n).items()
        )

    return [
        sum(similarity(one, other) for place, other in enumerate(members) if place != own)
        for own, one in enumerate(members)
    ]


@pytest.mark.parametrize("seed", range(8))
def test_the_consensus_is_that_of_comparing_all_pairs(seed):
    captions = drawn_captions(seed)
    nearest = np.random.default_rng(seed).permuted(np.tile(np.arange(8), (3, 1)), axis=1)[:, :4]
    found = consensus_captions(nearest, captions)
    for row, chosen in zip(nearest, found, strict=True):
        members = [caption for position in row for caption in captions[position]]
        agreements = plain_agreements(members, captions)
        assert agreements[members.index(chosen)] == pytest.approx(max(agreements), abs=1e-8)


def test_the_constant_caption_is_the_consensus_of_all_training_captions():
    captions = drawn_captions(3)
    members = [caption for each in captions for caption in each]
    agreements = plain_agreements(members, captions)
    assert agreements[members.index(constant_caption(captions))] == pytest.approx(max(agreements), abs=1e-8)


def test_the_caption_of_the_nearer_image_wins_a_tie():
    captions = [["a b"], ["c d"], ["e f"]]
    assert consensus_captions(np.array([[2, 0], [1, 2]]), captions) == ["e f", "c d"]


def test_one_training_image_gives_its_first_caption():
    assert constant_caption([["a dog", "a cat"]]) == "a dog"
    assert consensus_captions(np.array([[0]]), [["a dog"]]) == ["a dog"]


def test_the_nearest_caption_is_the_first_of_the_nearest_image():
    captions = [["a dog", "a hound"], ["a cat"], []]
    assert nearest_captions(np.array([[0, 1], [1, 0]]), captions) == ["a dog", "a cat"]
    with pytest.raises(InputError, match="training image 2 has no caption"):
        nearest_captions(np.array([[2, 0]]), captions)


def test_nothing_to_take_captions_from_is_an_error():
    for captions in ([], [[], []]):
        with pytest.raises(InputError, match="no training captions"):
            constant_caption(captions)
    with pytest.raises(InputError, match="the neighbors of image 0 have no captions"):
        consensus_captions(np.array([[1]]), [["a dog"], []])
