import numpy as np
import pytest

from fne.core.errors import InputError
from fne.features.statistics import fit
from fne.features.thresholds import STEPS, THRESHOLDS
from fne.store.layout import Layer
from tests.features.samples import store


def opened(tmp_path, values: np.ndarray):
    rows = store(tmp_path / "s", values.astype(np.float32), [Layer("conv", values.shape[1])])
    return rows, fit(rows, rows.ids)


def test_fixed_thresholds_are_taken_as_they_are(tmp_path):
    rows, ordinary = opened(tmp_path, np.ones((2, 3)))
    assert THRESHOLDS["fixed"](rows, ordinary, slice(None), -0.25, 0.15) == (-0.25, 0.15)


@pytest.mark.parametrize(("low", "high"), [(0.1, 0.9), (0.4, 0.56), (0.5, 0.999)])
def test_quantiles_agree_with_numpys_within_a_bin(tmp_path, low, high):
    values = np.random.default_rng(0).exponential(2.0, (90, 40)).astype(np.float32)
    values[:, 7] = 3.0
    rows, ordinary = opened(tmp_path, values)
    found = THRESHOLDS["quantiles"](rows, ordinary, np.arange(5, 40), low, high)
    kept = [column for column in range(5, 40) if column != 7]
    scores = (values[:, kept] - ordinary.mean[kept]) / ordinary.deviation[kept]
    for threshold, share in zip(found, (low, high), strict=True):
        exact = np.quantile(scores, share, method="inverted_cdf")
        assert 0 <= threshold - exact <= 1 / STEPS


def test_only_the_images_of_the_statistics_count(tmp_path):
    values = np.random.default_rng(0).normal(size=(60, 5))
    values[40:] += 100
    rows = store(tmp_path / "s", values.astype(np.float32), [Layer("conv", 5)])
    low, high = THRESHOLDS["quantiles"](
        rows, fit(rows, rows.ids[:1] + sorted(rows.ids)[1:40]), slice(None), 0.25, 0.75
    )
    assert low < high < 70


def test_quantiles_that_fall_together_are_refused(tmp_path):
    rows, ordinary = opened(tmp_path, np.array([[0.0], [1.0]]))
    with pytest.raises(InputError) as error:
        THRESHOLDS["quantiles"](rows, ordinary, slice(None), 0.1, 0.2)
    assert error.value.message == (
        f"params.yaml: section 'embed': the quantiles 0.1 and 0.2 are the same z-score, {-1 + 1 / STEPS}; "
        "choose shares further apart"
    )


def test_quantiles_beyond_the_bins_are_refused(tmp_path):
    values = np.zeros((10_000, 1))
    values[0] = 1.0
    rows, ordinary = opened(tmp_path, values)
    with pytest.raises(
        InputError, match="the quantile 0.99995 lies beyond 64 deviations; choose a share nearer to a half"
    ):
        THRESHOLDS["quantiles"](rows, ordinary, slice(None), 0.5, 0.99995)


def test_quantiles_of_nothing_that_varies_are_refused(tmp_path):
    rows, ordinary = opened(tmp_path, np.ones((3, 2)))
    with pytest.raises(InputError, match="no kept feature varies; there are no quantiles"):
        THRESHOLDS["quantiles"](rows, ordinary, slice(None), 0.4, 0.6)
