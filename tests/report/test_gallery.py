import numpy as np
import pytest

from fne.report.gallery import CANDIDATES, _example, choose_gallery, choose_queries, count_outcomes
from fne.report.sources import Direction
from tests.support.report import read_run, write_run

RANKS = np.array([1] * 50 + list(range(2, 52)))


def draw(ranks: np.ndarray, count: int, seed: int = 0) -> list[int]:
    return choose_queries(ranks, np.zeros(len(ranks)), count, np.random.default_rng(seed))


def test_half_are_hits_and_the_misses_are_spread_over_the_ranks():
    ranks = RANKS[draw(RANKS, 10)]
    assert (ranks == 1).sum() == 5
    assert [(rank - 2) // 10 for rank in ranks if rank > 1] == [0, 1, 2, 3, 4]


def test_of_misses_with_similar_ranks_the_one_with_the_highest_score_is_chosen():
    scores = np.random.default_rng(0).random(len(RANKS))
    queries = choose_queries(RANKS, scores, 10, np.random.default_rng(0))
    chosen = [query for query in queries if RANKS[query] > 1]
    groups = [range(start, start + 10) for start in range(50, 100, 10)]
    assert chosen == [max(group, key=lambda query: scores[query]) for group in groups]


def test_examples_are_grouped_by_rank_and_the_most_confident_errors_are_among_them(tmp_path):
    write_run(tmp_path, sentences=[(f"sentence {number}",) for number in range(40)], recalls=(1, 3))
    evaluation = read_run(tmp_path)
    direction, examples = evaluation.image_to_text, choose_gallery(evaluation, 20, 0).images
    assert len({example.id for example in examples}) == len(examples) == 20
    spans = {"hit": (1, 1), "near": (2, 5), "mid": (6, 10), "far": (11, 40)}
    assert all(spans[each.outcome][0] <= each.rank <= spans[each.outcome][1] for each in examples)
    counts = {
        name: sum(low <= rank <= high for rank in direction.ranks) for name, (low, high) in spans.items()
    }
    assert count_outcomes(direction.ranks) == counts
    assert all(counts.values())
    scored = zip(direction.scores[:, 0], direction.ranks, direction.query_ids, strict=True)
    misses = [each for each in scored if each[1] > 1]
    surest = {query for _, _, query in sorted(misses, key=lambda each: -each[0])[:5]}
    assert {each.id for each in examples if each.sure} == surest


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
def test_hits_replace_missing_misses_and_the_reverse_without_duplicates(ranks, count, expected):
    chosen = draw(np.array(ranks), count)
    assert len(set(chosen)) == len(chosen)
    if isinstance(expected, int):
        assert len(chosen) == expected
    else:
        assert [ranks[query] for query in chosen] == expected


def test_the_choice_depends_on_the_seed():
    assert draw(RANKS, 10, seed=1) == draw(RANKS, 10, seed=1)
    assert draw(RANKS, 10, seed=1) != draw(RANKS, 10, seed=2)


@pytest.mark.parametrize("top", [1, 3, 30])
def test_every_sentence_shows_its_true_image_once_and_only_true_items_are_marked(tmp_path, top):
    sentences = [(f"sentence {number}", f"again {number}") for number in range(15)]
    write_run(tmp_path, sentences=sentences, top=top)
    gallery = choose_gallery(read_run(tmp_path), 30, 0)
    assert len(gallery.sentences) == 30
    for example in gallery.sentences:
        own, shown = example.id.split("#")[0], [candidate.id for candidate in example.candidates]
        assert [c.id for c in example.candidates if c.true] == [own]
        assert len(shown) == len(set(shown)) <= CANDIDATES
        assert next(c.place for c in example.candidates if c.true) == example.rank
    for example in gallery.images:
        for candidate in example.candidates:
            assert candidate.true == (candidate.id.split("#")[0] == example.id)


def test_among_equal_scores_the_true_item_comes_last_as_in_its_rank():
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
    example = _example(direction, 0)
    assert [(each.id, each.place) for each in example.candidates] == [("other", 1), ("true", 2), ("third", 3)]
