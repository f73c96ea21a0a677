from dataclasses import replace

import numpy as np
import pytest

from fne.core.errors import InputError
from fne.features.embeddings import EMBEDDINGS, Choices
from fne.features.statistics import Statistics, fit
from fne.store.layout import Layer
from fne.store.rows import Rows
from tests.features.samples import store

LAYERS = [Layer("conv1", 1), Layer("conv2", 1), Layer("fc6", 2)]
VALUES = np.array([[1, 4, 0, 5], [3, 4, 0, 5], [2, 8, 0, 5], [2, 0, 0, 5]], dtype=np.float32)
CHOICES = Choices(low=-0.25, high=0.15, layer="fc6")


@pytest.fixture
def rows(tmp_path) -> Rows:
    return store(tmp_path / "s", VALUES, LAYERS)


@pytest.fixture
def ordinary(rows) -> Statistics:
    return fit(rows, rows.ids)


def test_fne_marks_what_is_strong_or_weak_among_the_training_images(rows, ordinary):
    embedding = EMBEDDINGS["fne"](rows, ordinary, CHOICES)
    assert embedding.transform(VALUES).tolist() == [[-1, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, -1, 0, 0]]
    assert embedding.varies.tolist() == [True, True, False, False]
    assert embedding.found == {"z_low": -0.25, "z_high": 0.15}


def test_zscore_keeps_the_z_scores_as_float16(rows, ordinary):
    scores = EMBEDDINGS["zscore"](rows, ordinary, CHOICES).transform(VALUES)
    assert scores.dtype == np.float16
    expected = (VALUES[:, :2] - VALUES[:, :2].mean(axis=0)) / VALUES[:, :2].std(axis=0)
    assert np.allclose(scores[:, :2], expected, rtol=1e-3)
    assert not scores[:, 2:].any()


def test_a_z_score_beyond_float16_stays_finite(rows, ordinary):
    scores = EMBEDDINGS["zscore"](rows, ordinary, CHOICES).transform(np.full((1, 4), 1e9, dtype=np.float32))
    assert scores.tolist() == [[65504, 65504, 0, 0]]


@pytest.mark.parametrize(
    ("kind", "choices", "columns"), [("raw", CHOICES, [0, 1, 2, 3]), ("layer", CHOICES, [2, 3])]
)
def test_raw_rows_have_length_one(rows, ordinary, kind, choices, columns):
    found = EMBEDDINGS[kind](rows, ordinary, choices).transform(VALUES)
    assert found.dtype == np.float32
    for row, values in zip(found, VALUES[:, columns].tolist(), strict=True):
        length = sum(value * value for value in values) ** 0.5
        assert row.tolist() == pytest.approx([value / length for value in values])


@pytest.mark.parametrize("kind", ["raw", "layer"])
def test_a_row_of_zeros_stays_as_it_is(rows, ordinary, kind):
    zeros = EMBEDDINGS[kind](rows, ordinary, CHOICES).transform(np.zeros((1, 4), dtype=np.float32))
    assert not zeros.any()


@pytest.mark.parametrize("kind", ["fne", "raw", "zscore"])
@pytest.mark.parametrize(
    ("layers", "columns"), [("conv", [0, 1]), ("fc", [2, 3]), (["fc6", "conv1"], [0, 2, 3])]
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


def test_a_layer_that_was_not_extracted_is_refused(rows, ordinary):
    with pytest.raises(InputError, match="has no layer 'fc7'; it has conv1, conv2, fc6"):
        EMBEDDINGS["layer"](rows, ordinary, replace(CHOICES, layer="fc7"))


@pytest.mark.parametrize("kind", ["fne", "raw", "zscore"])
def test_layers_that_the_store_lacks_are_refused_listing_those_it_has(rows, ordinary, kind):
    with pytest.raises(InputError) as error:
        EMBEDDINGS[kind](rows, ordinary, replace(CHOICES, layers=["fc6", "fc9"]))
    assert error.value.message == (
        f"{rows.artifact.path}: has no layer 'fc9'; it has conv1, conv2, fc6; see `embed.layers` in params.yaml"
    )


def test_what_was_recorded_repeats_the_embedding_with_the_thresholds_that_were_found(rows, ordinary):
    choices = replace(CHOICES, low=0.2, high=0.6, thresholds="quantiles", layers=["conv2"])
    embedding = EMBEDDINGS["fne"](rows, ordinary, choices)
    settings = {"low": 0.2, "high": 0.6, "layer": "fc6", "layers": ["conv2"], **embedding.found}
    again = EMBEDDINGS["fne"](rows, ordinary, Choices.recorded(settings))
    assert again.found == embedding.found
    assert np.array_equal(again.transform(VALUES), embedding.transform(VALUES))


@pytest.mark.parametrize("kind", EMBEDDINGS)
def test_every_kind_declares_the_width_and_type_of_its_rows(rows, ordinary, kind):
    embedding = EMBEDDINGS[kind](rows, ordinary, CHOICES)
    made = embedding.transform(VALUES)
    assert made.shape == (4, sum(layer.features for layer in embedding.layers))
    assert embedding.dtype == ("ternary" if made.dtype == np.int8 else made.dtype.name)
