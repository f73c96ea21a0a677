import numpy as np
import pytest

from fne.core.errors import InputError
from fne.evaluation.paired import SEEDS_UNKNOWN
from fne.experiments.compare import compare
from fne.store.arrays import Arrays
from tests.support.paper_runs import ranks
from tests.support.refusals import refused


def improved(base: Arrays, by: int) -> Arrays:
    """Return ranks that are lower by `by`, but at least 1."""
    values = {name: np.maximum(1, base[name] - by) for name in ("image_ranks", "caption_ranks")}
    return Arrays(base.artifact, base.values | values)


def by_metric(found):
    return {each.metric: each for each in found}


def test_metrics_and_intervals_equal_those_of_plain_loops():
    a, b = ranks(seed=0, images=20), ranks(seed=1, images=20)
    found = by_metric(compare([a], [b], samples=300))
    assert found["image_to_text.R@5"].a == pytest.approx(
        100 * sum(rank <= 5 for rank in a["image_ranks"]) / 20
    )
    assert found["text_to_image.mean_rank"].b == pytest.approx(sum(b["caption_ranks"]) / 100)
    generator = np.random.default_rng(7)
    differences = []
    for _ in range(3000):
        drawn = generator.integers(20, size=20)
        means = [
            np.mean([each["caption_ranks"][5 * image + place] for image in drawn for place in range(5)])
            for each in (a, b)
        ]
        differences.append(means[1] - means[0])
    low, high = np.percentile(differences, [2.5, 97.5])
    assert found["text_to_image.mean_rank"].low == pytest.approx(low, abs=0.06)
    assert found["text_to_image.mean_rank"].high == pytest.approx(high, abs=0.06)


def test_equal_runs_show_no_difference():
    for each in compare([ranks()], [ranks()], samples=50):
        assert (each.low, each.high, each.p) == (0, 0, 1)


def test_the_paired_interval_is_a_point_where_every_rank_is_higher_by_one():
    base = ranks(images=40)
    found = by_metric(compare([base], [improved(base, -1)], samples=100))["text_to_image.mean_rank"]
    assert (found.low, found.high) == pytest.approx((1, 1))


def test_with_fewer_than_five_seeds_on_a_side_nothing_is_called_better():
    base = ranks(images=20)
    for few, many in ((1, 1), (4, 5), (5, 4)):
        found = compare([base] * few, [improved(base, 3)] * many, samples=50)
        assert {each.verdict for each in found} == {SEEDS_UNKNOWN}


def test_with_five_seeds_the_better_side_is_named_and_a_lower_rank_is_better():
    base = [ranks(seed=seed, images=40) for seed in range(5)]
    other = [improved(each, 3) for each in base]
    found = by_metric(compare(base, other, samples=200))
    assert found["rsum"].verdict == found["text_to_image.mean_rank"].verdict == "B is better"
    assert found["text_to_image.mean_rank"].high < 0 < found["rsum"].low
    assert by_metric(compare(other, base, samples=200))["rsum"].verdict == "A is better"
    assert by_metric(compare(base, base, samples=200))["rsum"].verdict == "no difference shown"


def test_the_variance_between_seeds_widens_the_interval():
    base = ranks(images=40)
    steady, varied = [improved(base, 2)] * 5, [improved(base, by) for by in (0, 1, 2, 3, 4)]
    widths = [
        by_metric(compare([base] * 5, side, samples=400))["text_to_image.mean_rank"]
        for side in (steady, varied)
    ]
    assert widths[1].high - widths[1].low > widths[0].high - widths[0].low


def test_different_test_images_are_an_error_with_both_digests():
    with refused(
        "these runs cannot be compared: one was evaluated with images 111111111111…, the other with images "
        "999999999999…; evaluate both on the same data set, split and protocol"
    ):
        compare([ranks()], [ranks(catalog="9" * 64)])
    with pytest.raises(InputError, match=r"with test images \w{12}…, the other with test images \w{12}…;"):
        compare([ranks(images=6)], [ranks(images=7)])
