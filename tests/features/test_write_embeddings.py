import numpy as np

from fne.features.embeddings import EMBEDDINGS, Choices
from fne.features.standardize import fit
from fne.features.write_embeddings import format_fractions, fractions_by_layer, write_embeddings
from fne.store.layout import Layer
from fne.store.rows import Rows
from tests.support.features import store

LAYERS = [Layer("conv", 2), Layer("fc7", 1)]


def test_fractions_count_every_value_and_dead_every_feature():
    rows, varies = np.array([[-1, 0, 1], [1, 0, 1], [-1, 0, 0]]), np.array([True, False, True])
    assert fractions_by_layer(LAYERS, varies, (rows < 0).sum(axis=0), (rows > 0).sum(axis=0), 3) == {
        "conv": {"minus": 0.3333, "zero": 0.5, "plus": 0.1667, "dead": 0.5},
        "fc7": {"minus": 0.0, "zero": 0.3333, "plus": 0.6667, "dead": 0.0},
    }


def test_settings_without_fractions_make_no_table():
    assert format_fractions({"kind": "raw"}) == []


def test_only_the_rows_that_are_asked_for_are_embedded(tmp_path):
    rows = store(tmp_path / "s", np.arange(18, dtype=np.float32).reshape(6, 3), LAYERS)
    embedding = EMBEDDINGS["raw"](rows, fit(rows, rows.ids), Choices(-0.25, 0.15, "fc7"))
    write_embeddings(tmp_path / "all", rows, embedding, {}, {})
    write_embeddings(tmp_path / "some", rows, embedding, {}, {}, ["r04", "r01"])
    some, everything = Rows.open(tmp_path / "some"), Rows.open(tmp_path / "all")
    assert sorted(some.ids) == ["r01", "r04"]
    assert np.array_equal(some.read(["r04", "r01"]), everything.read(["r04", "r01"]))
    assert sorted(everything.ids) == sorted(rows.ids)
