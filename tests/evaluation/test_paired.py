import numpy as np
import pytest

from fne.evaluation.intervals import Ranked, draws, metrics_of_draws, percentiles
from fne.evaluation.metrics.recall import RECALLS
from fne.evaluation.paired import (
    NO_DIFFERENCE,
    SEEDS_UNKNOWN,
    compare_rsums,
    difference,
    holm,
    rsum_samples,
)


def ranked(seed: int, images: int = 12, folds: int = 3) -> Ranked:
    generator = np.random.default_rng(seed)
    owners = np.repeat(np.arange(images), generator.integers(1, 4, size=images))
    return with_ranks(owners, folds, generator, images)


def with_ranks(owners: np.ndarray, folds: int, generator: np.random.Generator, images: int) -> Ranked:
    return Ranked(
        generator.integers(1, 15, size=images),
        generator.integers(1, 15, size=len(owners)),
        owners,
        np.arange(images) % folds,
    )


def test_samples_of_the_sum_of_recalls_are_those_of_the_bootstrap_of_all_metrics():
    first = ranked(0)
    second = with_ranks(first.caption_image, 3, np.random.default_rng(1), 12)
    found = rsum_samples([[first], [second]], samples=150, seed=3)
    for side, (whole, samples) in zip((first, second), found, strict=True):
        drawn = [metrics_of_draws(side, times, RECALLS)["rsum"] for times in draws(side.folds, 150, 3)]
        assert samples == pytest.approx(np.concatenate(drawn))
        assert whole == pytest.approx(metrics_of_draws(side, np.ones((1, 12)), RECALLS)["rsum"][0])


def test_seeds_are_averaged_and_resampled_only_if_all_sides_have_enough():
    first = ranked(0)
    seeds = [with_ranks(first.caption_image, 3, np.random.default_rng(each), 12) for each in range(5)]
    few = rsum_samples([seeds, seeds[:4]], samples=50)
    alone = [rsum_samples([[each]], samples=50)[0] for each in seeds]
    assert few[0][0] == pytest.approx(np.mean([whole for whole, _ in alone]))
    assert few[0][1] == pytest.approx(np.mean([samples for _, samples in alone], axis=0))
    enough = rsum_samples([seeds, seeds], samples=50)
    assert not np.allclose(enough[0][1], few[0][1])
    assert not np.allclose(enough[0][1], enough[1][1])  # seeds are drawn for each side
    paired = rsum_samples([seeds, seeds], samples=50, same_seeds=True)
    assert np.array_equal(paired[0][1], paired[1][1])  # the same seeds for both
    assert not np.allclose(paired[0][1], few[0][1])


def test_a_corrected_interval_is_that_of_a_higher_level():
    values = np.random.default_rng(0).normal(size=4000)
    assert percentiles(values, 10) == pytest.approx(tuple(np.percentile(values, [0.25, 99.75])))


def test_holm_equals_plain_loops():
    values = [0.04, 0.001, 0.5, 0.02, 0.02]
    ordered = sorted(values)
    steps = [min(1.0, (len(ordered) - place) * value) for place, value in enumerate(ordered)]
    expected = {value: max(steps[: place + 1]) for place, value in reversed(list(enumerate(ordered)))}
    assert holm(values) == pytest.approx([expected[value] for value in values])


def test_holm_never_reverses_the_order_and_stays_below_one():
    assert holm([0.9, 0.8, 0.01]) == pytest.approx([1.0, 1.0, 0.03])
    assert holm([]) == []


@pytest.mark.parametrize(
    ("shift", "enough", "comparisons", "verdict"),
    [
        (5.0, True, 1, "B is better"),
        (-5.0, True, 1, "A is better"),
        (5.0, False, 1, SEEDS_UNKNOWN),
        (2.2, True, 1, "B is better"),
        (2.2, True, 20, NO_DIFFERENCE),
    ],
)
def test_the_verdict_needs_enough_training_runs_and_a_corrected_interval_without_zero(
    shift, enough, comparisons, verdict
):
    a = np.zeros(2000)
    b = np.random.default_rng(0).normal(shift, 1.0, size=2000)
    found = compare_rsums((0.0, a), (shift, b), enough, comparisons)
    assert found.verdict == verdict
    assert 0 < found.p <= 1


def test_lower_ranks_are_better():
    drawn = np.stack([np.full(100, 5.0), np.full(100, 3.0)])
    assert difference("text_to_image.median_rank", 5.0, 3.0, drawn, enough=True).verdict == "B is better"
