import pytest

from fne.core.params import parse_section
from fne.features.settings import Embed

EMBED = {
    "source": "features/activations",
    "kind": "fne",
    "layers": "all",
    "thresholds": "fixed",
    "low": -0.25,
    "high": 0.15,
    "layer": "fc7",
}


def faults(**changes: object) -> list[str]:
    return parse_section({"embed": EMBED | changes}, "embed", Embed)[1]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"layers": ["conv5_3", "fc7"], "kind": "zscore"},
        {"thresholds": "quantiles", "low": 0.4, "high": 0.6},
        {"kind": "layer", "layer": "fc6"},
    ],
)
def test_valid_combinations_have_no_faults(changes):
    assert faults(**changes) == []


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"low": 0.5}, "low must be below high, got low=0.5, high=0.15"),
        (
            {"thresholds": "quantiles"},
            "with thresholds 'quantiles', low and high are shares between 0 and 1, got low=-0.25, high=0.15",
        ),
        (
            {"thresholds": "quantiles", "low": 0.5, "high": 1.0},
            "with thresholds 'quantiles', low and high are shares between 0 and 1, got low=0.5, high=1.0",
        ),
        ({"thresholds": "otsu"}, "thresholds: 'otsu' is not one of 'fixed', 'quantiles'"),
        ({"layers": "fc7"}, "layers: 'fc7' is not one of 'all', 'conv', 'fc' and not a list of layer names"),
        ({"layers": 5}, "layers: expected 'all', 'conv', 'fc' or a list of layer names, got 5"),
        ({"layers": []}, "layers: expected 'all', 'conv', 'fc' or a list of layer names, got []"),
        ({"layers": ["fc7", "fc7"]}, "layers: a layer is named twice in ['fc7', 'fc7']"),
        (
            {"kind": "layer", "layers": "fc"},
            "kind 'layer' keeps the one in 'layer'; set layers to 'all', got 'fc'",
        ),
        ({"low": "-0.25"}, "low: input should be a valid number, got '-0.25'"),
    ],
)
def test_wrong_values_and_combinations_are_refused_in_one_line(changes, fault):
    assert faults(**changes) == [fault]
