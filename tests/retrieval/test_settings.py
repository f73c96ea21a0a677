import pytest

from fne.core.params import load_section, parse_section
from fne.retrieval.settings import Evaluate
from tests.imports import ROOT

GOOD = {"split": "test", "protocol": "full", "recalls": [1, 5], "top": 3}


def test_the_shipped_section_is_valid():
    assert load_section(ROOT / "params.yaml", "evaluate", Evaluate).recalls == [1, 5, 10]


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"recalls": [5, 1]}, "recalls: must grow from one to the next, got [5, 1]"),
        ({"recalls": [1, 1]}, "recalls: must grow from one to the next, got [1, 1]"),
        (
            {"protocol": "coco_1k"},
            "protocol: 'coco_1k' is not one of 'coco_1k_first', 'coco_1k_mean5', 'coco_5k', 'full'",
        ),
        ({"recalls": [0]}, "recalls: input should be greater than or equal to 1, got 0"),
        ({"recalls": []}, "recalls: list should have at least 1 item after validation, not 0, got []"),
    ],
)
def test_faults_are_told_in_words(changes, fault):
    assert parse_section({"evaluate": GOOD | changes}, "evaluate", Evaluate) == (None, [fault])
