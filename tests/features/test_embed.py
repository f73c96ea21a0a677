import numpy as np

from fne.features.embed import TernaryFractions, format_fractions
from fne.store.layout import Layer

LAYERS = [Layer("conv", 2), Layer("fc7", 1)]


def test_fractions_count_every_value_and_dead_every_feature():
    fractions = TernaryFractions(LAYERS, np.array([True, False, True]))
    fractions.add(np.array([[-1, 0, 1], [1, 0, 1]], dtype=np.int8))
    fractions.add(np.array([[-1, 0, 0]], dtype=np.int8))
    assert fractions.by_layer() == {
        "conv": {"minus": 0.3333, "zero": 0.5, "plus": 0.1667, "dead": 0.5},
        "fc7": {"minus": 0.0, "zero": 0.3333, "plus": 0.6667, "dead": 0.0},
    }


def test_settings_without_fractions_make_no_table():
    assert format_fractions({"kind": "raw"}) == []
