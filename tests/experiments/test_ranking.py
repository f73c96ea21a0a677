from itertools import combinations

import numpy as np
import pytest

from fne.core.errors import InputError
from fne.evaluation.intervals import draws
from fne.evaluation.metrics.recall import RECALLS
from fne.evaluation.paired import holm
from fne.experiments.ranking import rank_experiments
from fne.store.arrays import Arrays
from tests.support.paper_runs import ranks


def with_ranks(base: Arrays, hits: float, seed: int) -> Arrays:
    """Return ranks of which a share is 1 and the others are 20, in both directions."""
    generator = np.random.default_rng(seed)
    drawn = {
        name: np.where(generator.random(len(base[name])) < hits, 1, 20)
        for name in ("image_ranks", "caption_ranks")
    }
    return Arrays(base.artifact, base.values | drawn)


@pytest.fixture(scope="module")
def base():
    return ranks(images=60)


def plain_ranking(sides, samples):
    """Ranks and separated pairs by the definition, with recalls counted query by query."""

    def rsum(side, images):
        total = 0.0
        for k in RECALLS:
            total += 100 * np.mean([side["image_ranks"][image] <= k for image in images])
            captions = [each for image in images for each in np.flatnonzero(side["caption_image"] == image)]
            total += 100 * np.mean(side["caption_ranks"][captions] <= k)
        return total

    drawn = []
    for times in draws(sides[0]["folds"], samples, 0):
        for row in times.astype(int):
            images = np.repeat(np.arange(len(row)), row)
            drawn.append([rsum(side, images) for side in sides])
    drawn, whole = np.array(drawn), [rsum(side, range(60)) for side in sides]
    pairs, values = list(combinations(range(len(sides)), 2)), []
    for a, b in pairs:
        difference = (drawn[:, b] - drawn[:, a]).round(9)
        values.append(
            min(1.0, 2 * (1 + min((difference <= 0).sum(), (difference >= 0).sum())) / (1 + samples))
        )
    apart = {pair for pair, p in zip(pairs, holm(values), strict=True) if p < 0.05}
    better = [
        sum(
            tuple(sorted((side, other))) in apart and whole[other] > whole[side]
            for other in range(len(sides))
        )
        for side in range(len(sides))
    ]
    return [1 + each for each in better], len(apart)


def test_ranks_are_those_of_the_definition_and_ties_share_one(base):
    sides = [with_ranks(base, hits, seed) for seed, hits in enumerate((0.3, 0.62, 0.6, 0.95))]
    found = rank_experiments([[each] for each in sides], samples=480)
    expected, separated = plain_ranking(sides, 480)
    assert (found.ranks, found.separated) == (expected, separated)
    assert (found.ranks, found.separated, found.pairs) == ([4, 2, 2, 1], 5, 6)
    assert found.order[0] == 3
    assert found.groups == [(1, 2)]
    assert [found.letters(side) for side in range(4)] == ["", "a", "a", ""]
    assert found.letters(1, used=2) == "c"


def test_an_experiment_between_two_separated_ones_may_be_tied_with_both(base):
    sides = [with_ranks(base, hits, 1) for hits in (0.5, 0.62)]
    mixed = [sides[0], with_ranks(base, 0.56, 6), sides[1]]
    found = rank_experiments([[each] for each in mixed])
    assert found.order == [2, 1, 0]
    assert found.groups == [(0, 1), (1, 2)]
    assert found.ranks == [2, 1, 1]
    assert found.letters(1) == "ab"


def test_among_equal_experiments_none_is_separated_however_many(base):
    found = rank_experiments([[base]] * 12)
    assert (set(found.ranks), found.separated, found.groups) == ({1}, 0, [(0, 11)])


def test_many_clearly_different_experiments_are_all_separated(base):
    found = rank_experiments(
        [[with_ranks(base, share, 1)] for share in (0.05, 0.2, 0.35, 0.5, 0.65, 0.8, 0.95)]
    )
    assert sorted(found.ranks) == [1, 2, 3, 4, 5, 6, 7]


def test_seeds_are_resampled_if_every_experiment_has_enough(base):
    many = [[with_ranks(base, share, seed) for seed in range(5)] for share in (0.5, 0.9)]
    assert rank_experiments(many).with_seeds
    assert not rank_experiments([many[0], many[1][:4]]).with_seeds


def test_other_test_images_are_refused(base):
    with pytest.raises(InputError, match="these runs cannot be compared"):
        rank_experiments([[base], [base], [ranks(images=59)]])
