from dataclasses import replace

import numpy as np
import pytest

from fne.evaluation.caption_scores import (
    CAPTIONER,
    CONSENSUS,
    CONSTANT,
    NEAREST,
    mean_with_interval,
    score_captions,
)
from fne.evaluation.metrics.caption_metrics import cider_d

TRAINING = {
    "t1": ["a dog runs in the snow", "a brown dog runs"],
    "t2": ["two men play soccer", "men play with a ball"],
    "t3": ["a red car on the street", "the car is red"],
    "t4": ["a dog runs on the beach", "a dog at the sea"],
}
REFERENCES = {
    "1": ["a dog runs", "the dog is running fast", "a dog", "dog in snow", "a fast dog"],
    "2": ["men play soccer in a field", "a game of soccer", "soccer", "two men", "men with a ball"],
    "3": ["a red car", "the red car is parked", "a car", "one red car", "car on street"],
}
CANDIDATES = {"1": "a dog runs", "2": "men play soccer", "3": "a red car on the street"}
NEAREST_IMAGES = np.array([[0, 3], [1, 2], [2, 1]])


def scored(candidates=CANDIDATES, references=REFERENCES, neighbors=NEAREST_IMAGES):
    return score_captions("test_full", candidates, references, TRAINING, neighbors)


def test_the_floors_are_shown_beside_the_captioner():
    found = scored()
    assert list(found.metrics) == [CAPTIONER, CONSTANT, NEAREST, CONSENSUS]
    assert len(set(found.candidates[CONSTANT].values())) == 1
    assert found.candidates[NEAREST] == {
        "1": TRAINING["t1"][0],
        "2": TRAINING["t2"][0],
        "3": TRAINING["t3"][0],
    }
    assert found.metrics[NEAREST]["found_in_training"] == 1.0
    assert found.metrics[CAPTIONER]["found_in_training"] == pytest.approx(1 / 3)
    for system, metrics in found.metrics.items():
        assert metrics["CIDEr-D"] == cider_d(found.candidates[system], REFERENCES).score
        low, high = found.intervals[system]["CIDEr-D"]
        assert low <= metrics["CIDEr-D"] <= high


@pytest.mark.parametrize(
    ("neighbors", "best"),
    [([[0, 3], [1, 2], [2, 1]], NEAREST), ([[1, 0, 3], [0, 1, 1], [0, 2, 2]], CONSENSUS)],
)
def test_the_difference_to_the_best_baseline_is_paired(neighbors, best):
    found = scored(neighbors=np.array(neighbors))
    highest = max(found.metrics[name]["CIDEr-D"] for name in (CONSTANT, NEAREST, CONSENSUS))
    assert found.best_baseline == best
    assert found.above[0] == pytest.approx(found.metrics[CAPTIONER]["CIDEr-D"] - highest)
    same = scored(dict(found.candidates[best]), neighbors=np.array(neighbors))
    assert same.above == (0.0, 0.0, 0.0)
    assert same.beats_floors is False


def test_a_captioner_beats_the_floors_if_the_whole_interval_is_above_the_best_one():
    found = scored()
    assert replace(found, above=(0.5, 0.1, 0.9)).beats_floors is True
    assert replace(found, above=(0.5, -0.1, 1.1)).beats_floors is False


def test_one_sentence_for_all_images_is_detected():
    assert scored().warning is None
    assert scored(dict.fromkeys(CANDIDATES, "a man")).warning == (
        "the captioner ignores the images: 1 different caption for 3 images, most often 'a man'"
    )


def test_a_single_image_has_no_cider():
    found = score_captions("test_full", {"1": "a dog"}, {"1": ["a dog runs"]}, TRAINING, NEAREST_IMAGES[:1])
    assert "CIDEr-D" not in found.metrics[CAPTIONER]
    assert (found.above, found.beats_floors, found.per_image) == (None, None, {})
    assert found.notes == [
        "CIDEr-D of a single image is 0 by definition and is left out.",
        "Images have 1 human captions; figures cannot be compared with those of five captions.",
    ]


def test_five_references_need_no_note():
    assert scored().notes == []


def test_an_interval_of_equal_values_is_one_value():
    assert mean_with_interval(np.full(7, 0.25)) == (0.25, 0.25, 0.25)
