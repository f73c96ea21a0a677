import os
import subprocess
import sys
from dataclasses import replace

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fne.core.settings import parse_section
from fne.features.embeddings import EMBEDDINGS, STEPS, THRESHOLDS, Choices, Embed, discretize, kept_layers
from fne.features.standardize import Statistics, fit, standardize
from fne.store.layout import Layer, count_views, view_layers
from fne.store.rows import Rows
from tests.support.features import store
from tests.support.imports import ROOT
from tests.support.refusals import refused

LAYERS = [Layer("conv1", 1), Layer("conv2", 1), Layer("fc6", 2)]
VALUES = np.array([[1, 4, 0, 5], [3, 4, 0, 5], [2, 8, 0, 5], [2, 0, 0, 5]], dtype=np.float32)
CHOICES = Choices(low=-0.25, high=0.15, layer="fc6")
UNIT = replace(CHOICES, rows="unit")
TERNARY = [[-1, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, -1, 0, 0]]
RECORDED = {"low": -0.25, "high": 0.15, "layer": "fc6", "layers": "all", "rows": "none"}
# Kinds that round their rows after scaling them.
ROUNDED = {"raw_float16": "raw", "raw_int8": "raw", "zscore_int8": "zscore"}


@pytest.fixture
def rows(tmp_path) -> Rows:
    return store(tmp_path / "s", VALUES, LAYERS)


@pytest.fixture
def ordinary(rows) -> Statistics:
    return fit(rows, rows.ids)


def test_fne_marks_what_is_strong_or_weak_among_the_training_images(rows, ordinary):
    embedding = EMBEDDINGS["fne"](rows, ordinary, CHOICES)
    assert embedding.transform(VALUES).tolist() == TERNARY
    assert embedding.varies.tolist() == [True, True, False, False]
    assert embedding.found == {"z_low": -0.25, "z_high": 0.15}


def test_zscore_keeps_finite_z_scores_as_float16(rows, ordinary):
    embedding = EMBEDDINGS["zscore"](rows, ordinary, CHOICES)
    scores = embedding.transform(VALUES)
    assert scores.dtype == np.float16
    expected = (VALUES[:, :2] - VALUES[:, :2].mean(axis=0)) / VALUES[:, :2].std(axis=0)
    assert np.allclose(scores[:, :2], expected, rtol=1e-3)
    assert not scores[:, 2:].any()
    assert embedding.transform(np.full((1, 4), 1e9, dtype=np.float32)).tolist() == [[65504, 65504, 0, 0]]


@pytest.mark.parametrize(("kind", "columns"), [("raw", [0, 1, 2, 3]), ("layer", [2, 3]), ("plain", [2, 3])])
def test_activations_are_kept_as_they_are_by_default(rows, ordinary, kind, columns):
    found = EMBEDDINGS[kind](rows, ordinary, CHOICES).transform(VALUES)
    assert found.dtype == np.float32
    assert np.array_equal(found, VALUES[:, columns])


@pytest.mark.parametrize("kind", sorted(EMBEDDINGS.keys() - ROUNDED))
def test_unit_rows_of_any_kind_are_its_rows_divided_by_their_lengths(rows, ordinary, kind):
    plain = EMBEDDINGS[kind](rows, ordinary, CHOICES)
    scaled = EMBEDDINGS[kind](rows, ordinary, UNIT)
    assert (scaled.layers, scaled.found, scaled.dtype) == (plain.layers, plain.found, "float32")
    found = scaled.transform(VALUES)
    assert found.dtype == np.float32
    for row, values in zip(found, plain.transform(VALUES).astype(float).tolist(), strict=True):
        length = sum(value * value for value in values) ** 0.5 or 1.0
        assert row.tolist() == pytest.approx([value / length for value in values])


@pytest.mark.parametrize("rows_key", ["layers", "unit", "rms"])
@pytest.mark.parametrize("kind", sorted(ROUNDED))
def test_rounded_kinds_are_their_scaled_rows_up_to_the_step_of_their_type(rows, ordinary, kind, rows_key):
    choices = replace(CHOICES, rows=rows_key)
    scaled = EMBEDDINGS[ROUNDED[kind]](rows, ordinary, choices).transform(VALUES).astype(float)
    embedding = EMBEDDINGS[kind](rows, ordinary, choices)
    found = embedding.transform(VALUES)
    assert found.dtype == embedding.dtype == kind.rpartition("_")[2]
    squares = [value * value for row in scaled.tolist() for value in row]
    step = (sum(squares) / len(squares)) ** 0.5 / 8 if kind.endswith("int8") else 1.0
    for row, values in zip(found.astype(float).tolist(), scaled.tolist(), strict=True):
        assert [value * step for value in row] == pytest.approx(values, abs=0.51 * step if step < 1 else 1e-3)


def test_an_embedding_of_one_byte_clips_what_is_sixteen_times_the_usual_and_records_the_usual(rows, ordinary):
    embedding = EMBEDDINGS["raw_int8"](rows, ordinary, CHOICES)
    large = np.array([[0, 1, 1000, -1000]], dtype=np.float32)
    assert embedding.transform(large).tolist() == [[0, 2, 127, -127]]
    assert embedding.found == {"rms": pytest.approx((np.square(VALUES).sum() / VALUES.size) ** 0.5)}
    nothing = Statistics(ordinary.mean, ordinary.deviation, [])
    recorded = EMBEDDINGS["raw_int8"](rows, nothing, Choices.recorded({**RECORDED, "rms": 8.0}))
    assert recorded.transform(VALUES).tolist() == VALUES.astype(int).tolist()


def test_an_embedding_of_zeros_has_no_root_mean_square(tmp_path):
    rows = store(tmp_path / "zeros", np.zeros((2, 4), dtype=np.float32), LAYERS)
    with refused(f"{tmp_path / 'zeros'}: all values of the embedding are 0; see `embed`"):
        EMBEDDINGS["raw_int8"](rows, fit(rows, rows.ids), CHOICES)


def test_signs_are_one_bit_about_the_mean_of_the_training_images(rows, ordinary):
    embedding = EMBEDDINGS["sign"](rows, ordinary, CHOICES)
    assert embedding.dtype == "ternary"
    signs = [[-1, -1, 0, 0], [1, -1, 0, 0], [-1, 1, 0, 0], [-1, -1, 0, 0]]
    assert embedding.transform(VALUES).tolist() == signs


def test_rows_can_be_scaled_layer_by_layer_whatever_the_kind(rows, ordinary):
    choices = replace(CHOICES, rows="layers")
    blocks = EMBEDDINGS["blocks"](rows, ordinary, CHOICES).transform(VALUES)
    assert np.array_equal(EMBEDDINGS["raw"](rows, ordinary, choices).transform(VALUES), blocks)
    # A layer of one feature has length one, whatever its value.
    assert EMBEDDINGS["fne"](rows, ordinary, choices).transform(VALUES).tolist() == TERNARY


def test_one_number_scales_all_values_to_a_root_mean_square_of_one(rows, ordinary):
    found = EMBEDDINGS["raw"](rows, ordinary, replace(CHOICES, rows="rms")).transform(VALUES)
    assert np.sqrt(np.square(found, dtype=np.float64).mean()) == pytest.approx(1.0)
    assert np.allclose(found / found[0, 3] * 5, VALUES)


NAMES = ["conv1_1", "conv1_2", "fc6", "fc7"]


@pytest.mark.parametrize(
    ("choice", "kept"),
    [
        ("all", NAMES), ("conv", NAMES[:2]), ("fc", NAMES[2:]), (["fc7", "conv1_1"], ["conv1_1", "fc7"]),
        ("first:1", NAMES[:1]), ("last:2", NAMES[2:]), ("last:4", NAMES),
    ],
)  # fmt: skip
def test_layers_are_kept_in_the_order_of_the_store(choice, kept):
    assert kept_layers(NAMES, choice) == kept


@pytest.mark.parametrize("kind", ["blocks", "fne", "raw", "zscore"])
@pytest.mark.parametrize(
    ("layers", "fault"),
    [
        ("last:4", "has 3 layers, and 'last:4' needs 4"),
        (["fc6", "fc9"], "has no layer 'fc9'; it has conv1, conv2, fc6"),
    ],
)
def test_layers_that_the_store_lacks_are_refused(rows, ordinary, kind, layers, fault):
    with refused(f"{rows.artifact.path}: {fault}; see `embed.layers` in params.yaml"):
        EMBEDDINGS[kind](rows, ordinary, replace(CHOICES, layers=layers))


def test_a_layer_that_was_not_extracted_is_refused(rows, ordinary):
    with refused("has no layer 'fc7'; it has conv1, conv2, fc6"):
        EMBEDDINGS["layer"](rows, ordinary, replace(CHOICES, layer="fc7"))


@pytest.mark.parametrize("kind", sorted(EMBEDDINGS.keys() - ROUNDED - {"sign"}))
def test_a_row_of_zeros_stays_zero(rows, kind):
    ordinary = Statistics(np.zeros(4), np.ones(4), rows.ids)
    zeros = EMBEDDINGS[kind](rows, ordinary, UNIT).transform(np.zeros((1, 4), dtype=np.float32))
    assert not zeros.any()


def test_plain_keeps_the_views_of_its_layer_one_after_the_other(tmp_path):
    layers = view_layers([Layer("conv1", 1), Layer("fc6", 2)], 2)
    values = np.arange(12, dtype=np.float32).reshape(2, 6)
    rows = store(tmp_path / "views", values, layers)
    embedding = EMBEDDINGS["plain"](rows, fit(rows, rows.ids), CHOICES)
    assert embedding.layers == [Layer("fc6@1", 2), Layer("fc6@2", 2)]
    assert count_views(embedding.layers) == 2
    assert embedding.transform(values).tolist() == [[1, 2, 4, 5], [7, 8, 10, 11]]


@pytest.mark.parametrize("kind", sorted(set(EMBEDDINGS) - {"plain"}))
def test_other_kinds_refuse_several_views(tmp_path, kind):
    rows = store(tmp_path / "views", np.zeros((2, 4), dtype=np.float32), view_layers([Layer("fc6", 2)], 2))
    with refused(
        f"{tmp_path / 'views'}: holds several views", "-S embed.kind=plain", "-S ++extract.views=mean"
    ):
        EMBEDDINGS[kind](rows, fit(rows, rows.ids), CHOICES)


def test_blocks_scale_each_layer_to_length_one(rows, ordinary):
    found = EMBEDDINGS["blocks"](rows, ordinary, CHOICES).transform(
        np.array([[-3, 4, 0.3, 0.4], [0, 2, 0, 0]], dtype=np.float32)
    )
    assert found.tolist() == [[-1, 1, pytest.approx(0.6), pytest.approx(0.8)], [0, 1, 0, 0]]


@pytest.mark.parametrize("kind", ["blocks", "fne", "raw", "raw_int8", "sign", "zscore"])
@pytest.mark.parametrize(
    ("layers", "columns"),
    [("conv", [0, 1]), ("last:1", [2, 3]), ("fc", [2, 3]), (["fc6", "conv1"], [0, 2, 3])],
)
def test_kept_layers_equal_an_embedding_of_a_store_without_the_others(
    tmp_path, rows, ordinary, kind, layers, columns
):
    embedding = EMBEDDINGS[kind](rows, ordinary, replace(CHOICES, layers=layers))
    kept = [layer for layer in LAYERS if layer.name in [each.name for each in embedding.layers]]
    alone = store(tmp_path / "alone", VALUES[:, columns], kept)
    expected = EMBEDDINGS[kind](alone, fit(alone, alone.ids), CHOICES)
    assert embedding.layers == expected.layers
    assert np.array_equal(embedding.transform(VALUES), expected.transform(VALUES[:, columns]))


def test_what_was_recorded_repeats_the_embedding_with_the_thresholds_that_were_found(rows, ordinary):
    changes = {"low": 0.2, "high": 0.6, "layers": ["conv2"]}
    embedding = EMBEDDINGS["fne"](rows, ordinary, replace(CHOICES, thresholds="quantiles", **changes))
    again = EMBEDDINGS["fne"](rows, ordinary, Choices.recorded(RECORDED | changes | embedding.found))
    assert again.found == embedding.found
    assert np.array_equal(again.transform(VALUES), embedding.transform(VALUES))


@pytest.mark.parametrize("kind", EMBEDDINGS)
def test_every_kind_declares_the_width_and_type_of_its_rows(rows, ordinary, kind):
    embedding = EMBEDDINGS[kind](rows, ordinary, CHOICES)
    made = embedding.transform(VALUES)
    assert made.shape == (4, sum(layer.features for layer in embedding.layers))
    ternary = kind in ("fne", "sign")
    assert embedding.dtype == ("ternary" if ternary else made.dtype.name)


def plainly(block: np.ndarray, statistics: Statistics, low: float, high: float) -> np.ndarray:
    """The definition: compare z-scores, and leave what never varies alone."""
    scores = standardize(block, statistics)
    return np.where(statistics.varies, (scores > high).astype(np.int8) - (scores < low), 0).astype(np.int8)


@given(st.lists(st.floats(-3, 3), min_size=1))
def test_every_score_is_discretized_as_the_paper_says(scores):
    count = len(scores)
    ordinary = Statistics(np.zeros(count), np.ones(count), [])
    expected = [1 if score > 0.15 else -1 if score < -0.25 else 0 for score in scores]
    assert discretize(np.array([scores]), ordinary, low=-0.25, high=0.15).tolist() == [expected]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(("low", "high"), [(-0.25, 0.15), (0.1, 0.2), (-0.2, -0.1)])
def test_the_compiled_loop_equals_the_definition_bit_for_bit(dtype, low, high):
    generator = np.random.default_rng(0)
    block = generator.normal(0.3, 0.4, (57, 203)).astype(dtype)
    deviation = generator.uniform(0.1, 1.0, 203)
    deviation[::10] = 0.0
    ordinary = Statistics(generator.normal(0.3, 0.1, 203), deviation, [])
    assert np.array_equal(discretize(block, ordinary, low, high), plainly(block, ordinary, low, high))


@pytest.mark.parametrize(("low", "high"), [(-0.25, 0.15), (-1 / 3, 0.1)])
def test_values_on_a_threshold_and_next_to_it_equal_the_definition(low, high):
    generator = np.random.default_rng(1)
    ordinary = Statistics(generator.normal(size=500), generator.uniform(0.01, 3.0, 500), [])
    at = np.stack([ordinary.mean + bound * ordinary.deviation for bound in (low, high)])
    block = np.concatenate([at, np.nextafter(at, -np.inf), np.nextafter(at, np.inf)])
    discretized = discretize(block, ordinary, low, high)
    assert np.array_equal(discretized, plainly(block, ordinary, low, high))
    assert len(np.unique(discretized)) == 3


def test_a_constant_feature_is_ordinary_whatever_the_thresholds():
    ordinary = Statistics(np.array([5.0]), np.array([0.0]), [])
    assert discretize(np.array([[5.0], [9.0]]), ordinary, low=0.5, high=0.7).tolist() == [[0], [0]]


def test_the_number_of_threads_changes_nothing(monkeypatch):
    block = np.random.default_rng(0).normal(size=(101, 33)).astype(np.float32)
    ordinary = Statistics(np.zeros(33), np.ones(33), [])
    found = []
    for threads in (1, 3):
        monkeypatch.setattr(numba.config, "NUMBA_NUM_THREADS", threads)
        found.append(discretize(block, ordinary, -0.25, 0.15))
    assert np.array_equal(*found)


def test_discretizing_leaves_the_number_of_threads_of_torch_as_it_is():
    """In a process of its own: numba sets the number only when it starts its threads."""
    program = (
        "import numpy as np, torch; from fne.features.embeddings import discretize; "
        "from fne.features.standardize import Statistics; torch.set_num_threads(1); "
        "discretize(np.ones((8, 3), np.float32), Statistics(np.zeros(3), np.ones(3), []), -0.25, 0.15); "
        "print(torch.get_num_threads())"
    )
    own = os.environ | {"NUMBA_NUM_THREADS": "4", "PYTHONPATH": str(ROOT)}
    assert subprocess.check_output([sys.executable, "-c", program], env=own, text=True) == "1\n"


@pytest.mark.parametrize(
    ("names", "choice", "fault"),
    [
        (NAMES[:2], "fc", "^has no fc layers; it has conv1_1, conv1_2$"),
        (NAMES, ["fc"], "^has no layer 'fc'; it has conv1_1, conv1_2, fc6, fc7$"),
    ],
)
def test_a_group_or_a_name_that_is_not_there_is_refused(names, choice, fault):
    with pytest.raises(ValueError, match=fault):
        kept_layers(names, choice)


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
    for threshold, fraction in zip(found, (low, high), strict=True):
        exact = np.quantile(scores, fraction, method="inverted_cdf")
        assert 0 <= threshold - exact <= 1 / STEPS


def test_only_the_images_of_the_statistics_count(tmp_path):
    values = np.random.default_rng(0).normal(size=(60, 5))
    values[40:] += 100
    rows = store(tmp_path / "s", values.astype(np.float32), [Layer("conv", 5)])
    low, high = THRESHOLDS["quantiles"](
        rows, fit(rows, rows.ids[:1] + sorted(rows.ids)[1:40]), slice(None), 0.25, 0.75
    )
    assert low < high < 70


@pytest.mark.parametrize(
    ("values", "low", "high", "fault"),
    [
        (
            [0, 1],
            0.1,
            0.2,
            f"the quantiles 0.1 and 0.2 are the same z-score, {-1 + 1 / STEPS}; choose fractions",
        ),
        ([1] + 9999 * [0], 0.5, 0.99995, "the quantile 0.99995 lies beyond 64 deviations; choose a fraction"),
        ([1, 1, 1], 0.4, 0.6, "no kept feature varies; there are no quantiles"),
    ],
)
def test_quantiles_that_say_nothing_are_refused(tmp_path, values, low, high, fault):
    rows, ordinary = opened(tmp_path, np.array(values)[:, None])
    with refused(": " + fault):
        THRESHOLDS["quantiles"](rows, ordinary, slice(None), low, high)


EMBED = {**RECORDED, "source": "features/activations", "kind": "fne", "layer": "fc7", "thresholds": "fixed"}
QUANTILES = {"thresholds": "quantiles"}


def faults(changes: dict[str, object]) -> list[str]:
    return parse_section({"embed": EMBED | changes}, "embed", Embed)[1]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"layers": ["conv5_3", "fc7"], "kind": "zscore"},
        QUANTILES | {"low": 0.4, "high": 0.6},
        {"kind": "layer", "layer": "fc6", "rows": "unit"},
        {"kind": "blocks", "layers": "conv"},
        {"kind": "plain", "layer": "fc6"},
        {"kind": "sign", "rows": "layers", "layers": "last:3"},
    ],
)
def test_valid_combinations_have_no_faults(changes):
    assert faults(changes) == []


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"low": 0.5}, "low must be below high, got low=0.5, high=0.15"),
        (QUANTILES, "low and high are fractions between 0 and 1, got low=-0.25, high=0.15"),
        (QUANTILES | {"low": 0.5, "high": 1.0}, "fractions between 0 and 1, got low=0.5, high=1.0"),
        ({"rows": "l1"}, "rows: 'l1' is not one of 'layers', 'none', 'rms', 'unit'"),
        ({"thresholds": "otsu"}, "thresholds: 'otsu' is not one of 'fixed', 'quantiles'"),
        (
            {"layers": "fc7"},
            "layers: 'fc7' is not one of 'all', 'conv', 'fc', 'first:N', 'last:N' and not a list",
        ),
        ({"layers": "last:0"}, "layers: 'last:0' is not one of "),
        ({"layers": 5}, "layers: expected 'all', 'conv', 'fc' or a list of layer names, got 5"),
        ({"layers": []}, "layers: expected 'all', 'conv', 'fc' or a list of layer names, got []"),
        ({"layers": ["fc7", "fc7"]}, "layers: a layer is named twice in ['fc7', 'fc7']"),
        (
            {"kind": "layer", "layers": "fc"},
            "'layer' keeps the one in 'layer'; set layers to 'all', got 'fc'",
        ),
        (
            {"kind": "plain", "layers": "fc"},
            "'plain' keeps the one in 'layer'; set layers to 'all', got 'fc'",
        ),
        ({"kind": "plain", "rows": "unit"}, "leaves values as they are; set rows to 'none', got 'unit'"),
        ({"low": "-0.25"}, "low: input should be a valid number, got '-0.25'"),
    ],
)
def test_wrong_values_and_combinations_are_refused_in_one_line(changes, fault):
    (found,) = faults(changes)
    assert fault in found
