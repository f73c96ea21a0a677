import statistics

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fne.core.errors import InputError
from fne.features.standardize import Moments, Statistics, fit, run_in_threads, standardize
from fne.store.layout import Layer
from tests.support.features import store


def moments(rows: np.ndarray, size: int) -> Moments:
    fitted = Moments(rows.shape[1])
    for start in range(0, len(rows), size):
        fitted.add(rows[start : start + size])
    return fitted


@given(st.integers(1, 40), st.integers(1, 7), st.integers(0, 2**32 - 1))
def test_blocks_of_any_size_give_what_pure_python_gives(count, size, seed):
    rows = np.random.default_rng(seed).normal(1e3, 3.0, (count, 3)).astype(np.float32)
    fitted = moments(rows, size)
    for column in range(3):
        values = [float(value) for value in rows[:, column]]
        assert fitted.mean[column] == pytest.approx(statistics.fmean(values), rel=1e-12)
        assert fitted.deviation[column] == pytest.approx(statistics.pstdev(values), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("shape", [(1, 1), (127, 511), (128, 512), (131, 1029), (1024, 3)])
def test_blocks_beyond_the_caches_sizes_agree_with_numpy(dtype, shape):
    rows = np.random.default_rng(0).normal(5.0, 2.0, shape).astype(dtype)
    fitted = moments(rows, 1024)
    assert np.allclose(fitted.mean, rows.mean(axis=0, dtype=np.float64), rtol=1e-13, atol=0)
    assert np.allclose(fitted.deviation, rows.astype(np.float64).std(axis=0), rtol=1e-11, atol=0)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_selected_rows_count_as_if_there_were_no_others(dtype):
    rows = np.random.default_rng(0).normal(5.0, 2.0, (400, 10)).astype(dtype)
    places = np.random.default_rng(1).permutation(400)[:300]
    picked, alone = Moments(10), Moments(10)
    picked.add(rows, places)
    alone.add(rows[places])
    assert picked.count == 300
    assert picked.mean.tobytes() == alone.mean.tobytes()
    assert picked.deviation.tobytes() == alone.deviation.tobytes()


@pytest.mark.parametrize("size", [1, 2])
def test_a_small_variance_far_from_zero_is_not_lost(size):
    rows = np.array([[1e4], [1e4 + 0.02]], dtype=np.float64)
    assert moments(rows, size).deviation[0] == pytest.approx(0.01, rel=1e-6)


def test_a_first_row_far_from_the_others_costs_no_precision():
    rows = np.random.default_rng(0).normal(0.0, 1e-3, (4000, 1)).astype(np.float32)
    rows[0] = 1e4
    values = [float(value) for value in rows[:, 0]]
    assert moments(rows, 1024).deviation[0] == pytest.approx(statistics.pstdev(values), rel=1e-13)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_constant_feature_has_no_deviation_at_all(dtype):
    rows = np.full((1700, 2), 0.1, dtype=dtype)
    fitted = moments(rows, 5)
    assert fitted.deviation.tolist() == [0.0, 0.0]
    assert fitted.mean.tolist() == rows[0].tolist()


def test_a_constant_feature_is_ordinary_even_where_a_new_image_differs():
    ordinary = Statistics(np.array([5.0]), np.array([0.0]), ["a", "b"])
    assert standardize(np.array([[5.0], [9.0]]), ordinary).tolist() == [[0.0], [0.0]]


def test_only_the_chosen_rows_are_fitted_and_they_are_recorded(tmp_path):
    rows = store(tmp_path / "s", np.array([[1.0], [3.0], [100.0]]), [Layer("conv", 1)])
    fitted = fit(rows, ["r00", "r01"])
    assert (fitted.mean.tolist(), fitted.deviation.tolist(), fitted.ids) == ([2.0], [1.0], ["r00", "r01"])


def test_rows_are_fitted_where_they_are_mapped_and_not_copied(tmp_path, monkeypatch):
    rows = store(tmp_path / "s", np.ones((50, 4), dtype=np.float32), [Layer("conv", 4)])
    added = []
    monkeypatch.setattr("fne.features.kernels.add_rows", lambda block, *_: added.append(block))
    fit(rows, rows.ids[:40])
    first, second = added
    assert np.shares_memory(first, rows.mapped_block(0))
    assert np.shares_memory(second, rows.mapped_block(1))


@pytest.mark.parametrize("count", [128, 300])
@pytest.mark.parametrize("fraction", [0.4, 1.0])
def test_a_store_of_several_shards_gives_what_numpy_gives(tmp_path, count, fraction):
    values = np.random.default_rng(0).normal(5.0, 2.0, (count, 30)).astype(np.float32)
    rows = store(tmp_path / "s", values, [Layer("conv", 30)], shards=3)
    chosen = [number for number in range(count) if number < fraction * count]
    fitted = fit(rows, [f"r{number:02d}" for number in reversed(chosen)])
    assert np.allclose(fitted.mean, values[chosen].mean(axis=0, dtype=np.float64), rtol=1e-13, atol=0)
    assert np.allclose(fitted.deviation, values[chosen].astype(np.float64).std(axis=0), rtol=1e-11, atol=0)


@pytest.mark.parametrize(("value", "word"), [(np.nan, "nan"), (np.inf, "inf"), (-np.inf, "-inf")])
@pytest.mark.parametrize("row", [0, 2])
def test_values_that_are_not_finite_are_refused_with_image_and_layer(tmp_path, value, word, row):
    values = np.ones((3, 4), dtype=np.float32)
    values[row, 3] = value
    rows = store(tmp_path / "s", values, [Layer("conv", 1), Layer("fc7", 3)])
    with pytest.raises(InputError) as error:
        fit(rows, rows.ids)
    assert error.value.message == (
        f"{tmp_path / 's'}: row 'r0{row}' has {word} in layer 'fc7', column 3; extract or import it again"
    )


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_every_item_is_processed_once(threads, count):
    before = numba.get_num_threads()
    numba.set_num_threads(min(threads, before))
    done = []
    run_in_threads(lambda first, last: done.extend(range(first, last)), count)
    numba.set_num_threads(before)
    assert sorted(done) == list(range(count))


def test_an_error_in_a_thread_is_raised():
    def fail(first, last):
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        run_in_threads(fail, 5)
