from pathlib import Path

import numpy as np
import pytest

from fne.core.errors import InputError
from fne.features.embeddings import EMBEDDINGS, Choices, embed_shards
from fne.features.statistics import Statistics, fit
from fne.store.layout import Layer, plan_shards
from fne.store.rows import Rows
from fne.store.writer import write_rows

IDS = ["a", "b", "c", "d"]
VALUES = np.array([[1, 4, 0, 5], [3, 4, 0, 5], [2, 8, 0, 5], [2, 0, 0, 5]], dtype=np.float32)
CHOICES = Choices(low=-0.25, high=0.15, layer="conv")


def activations(folder: Path) -> Rows:
    shards = [
        (number, ids, VALUES[[IDS.index(each) for each in ids]])
        for number, ids in plan_shards(IDS, 2).items()
    ]
    write_rows(folder, "activations", [Layer("conv", 2), Layer("fc", 2)], "float32", shards, {}, {})
    return Rows.open(folder)


def embedded(rows: Rows, kind: str, statistics: Statistics) -> dict[str, list[float]]:
    embedding = EMBEDDINGS[kind](rows, statistics, CHOICES)
    return {
        each: values.tolist()
        for _, ids, block in embed_shards(rows, embedding)
        for each, values in zip(ids, block, strict=True)
    }


def test_fne_marks_what_is_strong_or_weak_among_the_training_images(tmp_path):
    rows = activations(tmp_path / "s")
    assert embedded(rows, "fne", fit([VALUES])) == {
        "a": [-1, 0, 0, 0],
        "b": [1, 0, 0, 0],
        "c": [0, 1, 0, 0],
        "d": [0, -1, 0, 0],
    }


def test_a_layer_keeps_its_columns_at_length_one(tmp_path):
    rows = activations(tmp_path / "s")
    found = embedded(rows, "layer", fit([VALUES]))
    assert found["a"] == pytest.approx([1 / 17**0.5, 4 / 17**0.5])
    assert found["d"] == [1, 0]


def test_a_row_of_zeros_stays_as_it_is(tmp_path):
    embedding = EMBEDDINGS["layer"](activations(tmp_path / "s"), fit([VALUES]), CHOICES)
    assert embedding.transform(np.zeros((1, 4), dtype=np.float32)).tolist() == [[0, 0]]


def test_a_layer_that_was_not_extracted_is_refused(tmp_path):
    with pytest.raises(InputError, match="has no layer 'fc7'; it has conv, fc"):
        EMBEDDINGS["layer"](activations(tmp_path / "s"), fit([VALUES]), Choices(-0.25, 0.15, "fc7"))


@pytest.mark.parametrize("kind", EMBEDDINGS)
def test_every_kind_declares_the_width_and_type_of_its_rows(tmp_path, kind):
    embedding = EMBEDDINGS[kind](activations(tmp_path / "s"), fit([VALUES]), CHOICES)
    rows = embedding.transform(VALUES)
    assert rows.shape == (4, sum(layer.features for layer in embedding.layers))
    assert embedding.dtype == ("ternary" if rows.dtype == np.int8 else "float32")
