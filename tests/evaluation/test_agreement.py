import numpy as np
import pytest
from scipy.stats import kendalltau, spearmanr
from sklearn.metrics import roc_auc_score

from fne.evaluation.agreement import (
    NAMES,
    agreement,
    agreement_within,
    judges_agreement,
    means_of_queries,
    set_figures,
    summarized,
)
from fne.evaluation.intervals import draws


def drawn_pairs(seed, pairs=60, images=7, scores=20, grades=5):
    """Pairs with ties in scores and grades, in no order; every image has some."""
    generator = np.random.default_rng(seed)
    owners = generator.permutation(np.arange(pairs) % images)
    return generator.integers(scores, size=pairs) / 7, generator.integers(1, grades + 1, pairs) / 3, owners


def by_scipy(scores, grades, acceptable):
    return {
        "spearman": spearmanr(scores, grades).statistic,
        "tau_b": kendalltau(scores, grades, variant="b").statistic,
        "tau_c": kendalltau(scores, grades, variant="c").statistic,
        "auc": roc_auc_score(grades >= acceptable, scores),
    }


def plain(scores, grades, acceptable):
    """Kendall's counts and the AUC, pair by pair."""
    size, balance, score_ties, grade_ties, won = len(scores), 0, 0, 0, 0.0
    for a in range(size):
        for b in range(a):
            balance += np.sign(scores[a] - scores[b]) * np.sign(grades[a] - grades[b])
            score_ties += scores[a] == scores[b]
            grade_ties += grades[a] == grades[b]
    good, bad = (
        [s for s, g in zip(scores, grades, strict=True) if (g >= acceptable) == side]
        for side in (True, False)
    )
    won = sum((a > b) + (a == b) / 2 for a in good for b in bad)
    fewer, every = min(len(set(scores)), len(set(grades))), size * (size - 1) / 2
    return {
        "tau_b": balance / ((every - score_ties) * (every - grade_ties)) ** 0.5,
        "tau_c": 2 * balance * fewer / (size**2 * (fewer - 1)),
        "auc": won / (len(good) * len(bad)),
    }


@pytest.mark.parametrize(("scores", "grades"), [(20, 5), (3, 3), (10**9, 40), (60, 10**9)])
def test_every_figure_is_that_of_scipy_and_of_plain_loops_in_every_sample(scores, grades):
    given = drawn_pairs(seed=scores % 97, scores=scores, grades=grades)
    acceptable = np.sort(given[1])[30]
    found = agreement(*given, acceptable, samples=5, seed=3)
    samples = np.concatenate([np.ones((1, 7)), *draws(np.zeros(7, dtype=int), 5, 3)]).astype(int)
    for sample, times in enumerate(samples):
        counts = times[given[2]]  # how often each pair is in the sample
        chosen = [np.repeat(each, counts) for each in given[:2]]
        own = {name: found[name][sample] for name in NAMES}
        assert own == pytest.approx(by_scipy(*chosen, acceptable), abs=1e-12)
        listed = plain(chosen[0].tolist(), chosen[1].tolist(), acceptable)
        assert {name: own[name] for name in listed} == pytest.approx(listed, abs=1e-12)


def test_within_an_image_it_is_the_mean_over_images_with_different_grades():
    scores, grades, owners = drawn_pairs(seed=1)
    grades[owners == 2] = 1.0
    found = agreement_within(scores, grades, owners, samples=4, seed=3)
    values = {
        image: kendalltau(scores[owners == image], grades[owners == image]).statistic
        for image in range(7)
        if image != 2
    }
    assert found["tau_b"][0] == pytest.approx(np.mean(list(values.values())))
    for sample, times in enumerate(
        np.concatenate([*draws(np.zeros(7, dtype=int), 4, 3)]).astype(int), start=1
    ):
        chosen = [value for image, value in values.items() for _ in range(times[image])]
        assert found["tau_b"][sample] == pytest.approx(np.mean(chosen))
    assert set(found) == set(NAMES) - {"auc"}


def test_what_is_not_defined_has_no_figure():
    scores, grades, owners = drawn_pairs(seed=2)
    found = agreement(scores, np.ones(60), owners, 1.0, samples=3)
    assert all(summarized(found[name]) is None for name in NAMES)
    assert summarized(agreement(np.zeros(60), grades, owners, 1.0, samples=3)["tau_b"]) is None
    perfect = agreement(grades, grades, owners, 1.0, samples=200)
    assert summarized(perfect["spearman"]) == {"value": 1.0, "low": 1.0, "high": 1.0}


def test_a_judge_is_compared_with_the_mean_of_the_others():
    judges = np.random.default_rng(0).integers(1, 5, (40, 3))
    expected = [
        kendalltau(judges[:, each], np.delete(judges, each, axis=1).sum(axis=1), variant="c").statistic
        for each in range(3)
    ]
    assert judges_agreement(judges.astype(float))["tau_c"] == pytest.approx(np.mean(expected))


def test_figures_of_sets_are_those_of_plain_loops_and_are_averaged_over_drawn_images():
    generator = np.random.default_rng(0)
    rights = [generator.permutation(30)[: generator.integers(1, 9)] for _ in range(25)]
    found = set_figures([each + 1 for each in rights], [1, 5])
    for query, right in enumerate(rights):
        wanted, size = set(right.tolist()), len(right)
        hits = [place in wanted for place in range(size)]
        precisions = [sum(hits[: place + 1]) / (place + 1) * hits[place] for place in range(size)]
        assert found["map_at_r"][query] == pytest.approx(sum(precisions) / size)
        assert found["r_precision"][query] == pytest.approx(sum(hits) / size)
        assert found["R@5"][query] == any(place in wanted for place in range(5))
    owners = np.arange(25) % 6
    sampled = means_of_queries(found, owners, samples=3, seed=1)["map_at_r"]
    for sample, times in enumerate(
        np.concatenate([*draws(np.zeros(6, dtype=int), 3, 1)]).astype(int), start=1
    ):
        assert sampled[sample] == pytest.approx(np.mean(np.repeat(found["map_at_r"], times[owners])))
