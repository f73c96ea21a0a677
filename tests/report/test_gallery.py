"""Which examples the gallery shows."""

import numpy as np
import pytest

from fne.report.evaluation import Direction
from fne.report.gallery import SHOWN, _example, choose, choose_gallery
from tests.report.runs import read_run, write_run

RANKS = np.array([1] * 50 + list(range(2, 52)))


def draw(ranks: np.ndarray, count: int, seed: int = 0) -> list[int]:
    return choose(ranks, np.zeros(len(ranks)), count, np.random.default_rng(seed))


def test_half_are_hits_and_the_misses_are_spread_over_the_ranks():
    ranks = RANKS[draw(RANKS, 10)]
    assert (ranks == 1).sum() == 5
    assert [(rank - 2) // 10 for rank in ranks if rank > 1] == [0, 1, 2, 3, 4]


def test_of_misses_with_similar_ranks_the_surest_mistake_is_shown():
    scores = np.random.default_rng(0).random(len(RANKS))
    chosen = [query for query in choose(RANKS, scores, 10, np.random.default_rng(0)) if RANKS[query] > 1]
    runs = [range(start, start + 10) for start in range(50, 100, 10)]
    assert chosen == [max(run, key=lambda query: scores[query]) for run in runs]


def test_near_means_within_the_largest_k_of_the_metrics(tmp_path):
    write_run(tmp_path, sentences=[(f"sentence {number}",) for number in range(20)], recalls=(1, 3))
    gallery = choose_gallery(read_run(tmp_path), 20, 0)
    assert gallery.near == 3
    found = {(example.rank == 1, example.rank <= 3, example.outcome) for example in gallery.images}
    assert found == {(True, True, "hit"), (False, True, "near"), (False, False, "far")}


@pytest.mark.parametrize(
    ("ranks", "count", "expected"),
    [
        ([1, 1, 1, 4], 4, [1, 1, 1, 4]),
        ([3, 5, 2], 2, 2),
        ([1, 1], 12, [1, 1]),
        ([7], 12, [7]),
        ([1, 2], 0, []),
    ],
)
def test_one_side_fills_up_for_the_other_and_none_appears_twice(ranks, count, expected):
    chosen = draw(np.array(ranks), count)
    assert len(set(chosen)) == len(chosen)
    if isinstance(expected, int):
        assert len(chosen) == expected
    else:
        assert [ranks[query] for query in chosen] == expected


def test_the_seed_decides():
    assert draw(RANKS, 10, seed=1) == draw(RANKS, 10, seed=1)
    assert draw(RANKS, 10, seed=1) != draw(RANKS, 10, seed=2)


@pytest.mark.parametrize("top", [1, 3, 30])
def test_every_sentence_shows_its_true_image_once_and_exactly_the_true_ones_are_marked(tmp_path, top):
    sentences = [(f"sentence {number}", f"again {number}") for number in range(15)]
    write_run(tmp_path, sentences=sentences, top=top)
    gallery = choose_gallery(read_run(tmp_path), 30, 0)
    assert len(gallery.sentences) == 30
    for example in gallery.sentences:
        own, shown = example.id.split("#")[0], [candidate.id for candidate in example.candidates]
        assert [c.id for c in example.candidates if c.true] == [own]
        assert len(shown) == len(set(shown)) <= SHOWN
        assert next(c.place for c in example.candidates if c.true) == example.rank
    for example in gallery.images:
        for candidate in example.candidates:
            assert candidate.true == (candidate.id.split("#")[0] == example.id)


def test_among_equal_scores_the_true_one_comes_last_as_in_its_rank():
    direction = Direction(
        metrics={},
        query_ids=["sentence"],
        pool_ids=["true", "other", "third"],
        ranks=np.array([2]),
        best=np.array([[0, 1, 2]]),
        scores=np.array([[0.5, 0.5, 0.1]]),
        true=np.array([[True, False, False]]),
        true_counts=np.array([1]),
        answers=np.array([0]),
        folds=np.array([0]),
        pool_folds=np.array([0, 0, 0]),
    )
    example = _example(direction, 0, 10)
    assert [(each.id, each.place) for each in example.candidates] == [("other", 1), ("true", 2), ("third", 3)]
