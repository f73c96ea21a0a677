import numpy as np
import pytest

from fne.evaluation.intervals import Ranked, draws, intervals, mean_interval, metrics_of_draws
from fne.evaluation.metrics.recall import mean_over_folds, sum_of_recalls, summarize

RECALLS = [1, 5]


def ranked(images: int, folds: int = 1, shift: int = 0, seed: int = 0) -> Ranked:
    """Draw ranks with one to four captions per image, and folds of about equal size."""
    generator = np.random.default_rng(seed)
    owners = np.repeat(np.arange(images), generator.integers(1, 5, images))
    return Ranked(
        generator.geometric(0.2, images) + shift,
        generator.geometric(0.1, len(owners)) + shift,
        owners,
        np.sort(np.arange(images) % folds),
    )


def slow_metrics(found: Ranked, times: np.ndarray) -> dict[str, float]:
    """Repeat every query as often as it is drawn, and summarize the lists."""
    both: dict[str, list[dict[str, float]]] = {"image_to_text": [], "text_to_image": []}
    for fold in np.unique(found.folds):
        drawn_images, drawn_captions = [], []
        for image, count in enumerate(times):
            if found.folds[image] == fold:
                for _ in range(int(count)):
                    drawn_images.append(found.image_ranks[image])
                    drawn_captions += found.caption_ranks[found.caption_image == image].tolist()
        both["image_to_text"].append(summarize(np.array(drawn_images), RECALLS))
        both["text_to_image"].append(summarize(np.array(drawn_captions), RECALLS))
    means = {direction: mean_over_folds(folds) for direction, folds in both.items()}
    flat = {f"{direction}.{name}": value for direction, each in means.items() for name, value in each.items()}
    return flat | {"rsum": sum_of_recalls(*means.values())}


@pytest.mark.parametrize("folds", [1, 3])
def test_metrics_of_draws_equal_those_of_lists_with_repeated_queries(folds):
    found = ranked(20, folds)
    (times,) = draws(found.folds, samples=30, seed=4)
    fast = metrics_of_draws(found, times, RECALLS)
    for sample, drawn in enumerate(times):
        expected = slow_metrics(found, drawn)
        assert {name: values[sample] for name, values in fast.items()} == pytest.approx(expected)


def test_every_sample_draws_as_many_images_of_each_fold_as_it_has():
    folds = np.array([0, 0, 0, 1, 1])
    times = np.concatenate(list(draws(folds, samples=250, seed=0)))
    assert times.shape == (250, 5)
    assert (times[:, :3].sum(axis=1) == 3).all()
    assert (times[:, 3:].sum(axis=1) == 2).all()
    assert times.mean(axis=0) == pytest.approx(np.ones(5), abs=0.2)
    assert times.max() > 1


def test_intervals_contain_the_metric_and_are_the_same_in_every_run():
    found = ranked(200)
    metrics = slow_metrics(found, np.ones(200))
    one, other = intervals(found, RECALLS), intervals(found, RECALLS)
    assert one == other
    assert one.keys() == metrics.keys()
    for name, (low, high) in one.items():
        assert low <= metrics[name] <= high, name


def test_an_interval_of_a_recall_is_about_that_of_the_binomial_distribution():
    found = Ranked(np.repeat([1, 9], 500), np.repeat([1, 9], 500), np.arange(1000), np.zeros(1000, int))
    low, high = intervals(found, RECALLS)["image_to_text.R@1"]
    half = 100 * 1.96 * np.sqrt(0.25 / 1000)
    assert (low, high) == pytest.approx((50 - half, 50 + half), abs=0.4)


def test_ranks_without_variance_have_intervals_without_width():
    found = Ranked(np.ones(9, int), np.ones(9, int), np.arange(9), np.zeros(9, int))
    assert intervals(found, RECALLS)["rsum"] == (400, 400)


def test_an_interval_of_equal_values_is_one_value():
    assert mean_interval(np.full(7, 0.25)) == (0.25, 0.25)
