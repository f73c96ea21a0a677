import json

import pytest

from fne.paper.measured import Measured, measured, started

DIRECTION = {"R@1": 1.0, "R@5": 2.0, "R@10": 3.0, "median_rank": 4.0, "mean_rank": 5.0}
RESULTS = {"image_to_text": DIRECTION, "text_to_image": DIRECTION, "rsum": 12.0, "images": 10, "captions": 50}


def file(**results) -> bytes:
    return json.dumps(results).encode()


def test_names_tell_split_and_protocol():
    numbers = (1.0, 2.0, 3.0, 4.0) * 2
    assert measured(file(test_full=RESULTS)) == [Measured("test", "full", numbers, 10, 50)]
    assert measured(file(val_coco_1k_first=RESULTS))[0].protocol == "coco_1k_first"


def test_results_under_no_protocol_are_left_out():
    assert measured(file(test=RESULTS)) == []


def test_a_recall_that_was_not_measured_is_unknown():
    fewer = {key: value for key, value in DIRECTION.items() if key != "R@5"}
    assert measured(file(test_full=RESULTS | {"text_to_image": fewer}))[0].numbers[5] is None


@pytest.mark.parametrize(("said", "meant"), [({"started": 1}, True), ({"started": False}, False), ({}, None)])
def test_whether_training_started(said, meant):
    assert started(file(test_full=RESULTS | said)) is meant
