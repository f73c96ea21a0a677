import numpy as np
import pytest

from fne.describing.concepts import Concepts
from fne.describing.write import Tags
from fne.evaluation.score_tags import (
    confusions,
    image_f1,
    read_tag_results,
    score_tags,
    tag_results,
    tag_rows,
    validation_levels,
    write_tag_results,
)
from fne.store.artifact import Artifact
from fne.store.checksums import parse_metrics

CONCEPTS = Concepts(["dog", "sea", "snow"], [3, 2, 1], 9, 1.0, [])
TRUE = [{"dog", "sea"}, {"sea"}, set(), {"dog", "cat"}]
PROBABILITIES = np.array([[0.9, 0.6, 0.1], [0.2, 0.7, 0.4], [0.1, 0.2, 0.3], [0.8, 0.1, 0.2]])
WRITTEN = [[1, 0], [], [], [0, 2]]


def evaluation(true=TRUE, probabilities=PROBABILITIES, written=WRITTEN, threshold=0.5):
    return score_tags("val_full", CONCEPTS, true, Tags(probabilities, written), 1, threshold)


def test_by_hand_with_zero_by_zero():
    found = evaluation().metrics
    assert (found["images"], found["concepts"]) == (4, 3)
    # "cat" is true of one image and no concept: it can never be found.
    assert (found["unlearned_tags"], found["unlearned_occurrences"]) == (1, 1)
    path = found["path"]
    # Tags dog, sea, snow, cat: precision 2/2, 1/1, 0/1, 0/0 and recall 2/2, 1/2, 0/0, 0/1.
    assert path["class_precision"] == pytest.approx(100 * (1 + 1 + 0 + 0) / 4)
    assert path["class_recall"] == pytest.approx(100 * (1 + 0.5 + 0 + 0) / 4)
    assert path["class_f1"] == pytest.approx(2 * 50 * 37.5 / 87.5)
    # Images: precision 2/2, 0/0, 0/0, 1/2 and recall 2/2, 0/1, 0/0, 1/2.
    assert path["image_precision"] == pytest.approx(100 * 1.5 / 4)
    assert path["image_recall"] == pytest.approx(100 * 1.5 / 4)
    assert path["pooled_precision"] == pytest.approx(100 * 3 / 4)
    assert path["pooled_recall"] == pytest.approx(100 * 3 / 5)
    assert (path["empty_true_images"], path["empty_predicted_images"]) == (1, 2)
    assert (path["empty_true_classes"], path["empty_predicted_classes"]) == (1, 1)
    # The likeliest concept of each image, and all above one half.
    assert found["top_1"]["pooled_precision"] == pytest.approx(100 * 3 / 4)
    assert found["above_0.5"]["predicted_length"] == 1
    # Average precisions of dog and sea are perfect, and snow is true of no image.
    assert found["mAP"] == 100


def test_answers_that_a_tagger_lacks_are_left_out():
    assert list(evaluation(written=None).answers) == ["top_1", "above_0.5"]
    assert list(evaluation(threshold=None).answers) == ["path", "top_1"]
    alone = evaluation(probabilities=None)
    assert list(alone.answers) == ["path"]
    assert "mAP" not in alone.metrics
    assert "mAP" not in alone.intervals


def test_the_best_answer_of_a_tagger_is_its_main_one():
    assert evaluation().main == "path"
    assert evaluation(written=None).main == "top_1"


def test_intervals_contain_the_metrics():
    found, bounds = evaluation().metrics, evaluation().intervals
    for answer in ("path", "top_1", "above_0.5"):
        for name, (low, high) in bounds[answer].items():
            assert low <= found[answer][name] <= high
    assert (bounds["level"], bounds["samples"]) == (0.95, 1000)


def test_results_are_listed_under_the_name_of_the_protocol(tmp_path):
    places, artifact = (tmp_path / "m.json", tmp_path / "i.json"), Artifact(tmp_path / "t", "tags", "ab")
    results = tag_results(evaluation(), ["1", "2", "3", "4"])
    line = write_tag_results(results, *places, {"split": "val"}, artifact)
    assert parse_metrics(places[0].read_bytes()).keys() == {"val_full"}
    assert "val_full" in parse_metrics(places[1].read_bytes())
    assert read_tag_results(*places, artifact) == results
    assert line.startswith("val_full: 4 images, mAP 100.0, F1 of path per class 42.9, per image 37.5 (")


def test_without_any_learned_positive_there_is_no_map():
    assert "mAP" not in evaluation(true=[{"cat"}, set(), set(), set()]).metrics


def test_every_tag_has_its_scores_and_its_frequency():
    dog, sea, _, cat = tag_rows(evaluation())
    assert (dog.name, dog.training, dog.true, dog.predicted) == ("dog", 3, 2, 2)
    assert (sea.precision, sea.recall, sea.f1) == (100, 50, pytest.approx(200 / 3))
    assert (dog.average_precision, sea.average_precision) == (100, 100)
    assert (cat.name, cat.training, cat.average_precision) == ("cat", None, None)


def test_silence_is_right_where_nothing_is_true():
    assert image_f1(evaluation()).tolist() == [100, 0, 100, 50]


def test_a_wrong_tag_is_confused_with_the_one_that_was_missed():
    assert confusions(evaluation()) == [("snow", "cat", 1)]


def test_the_validation_of_a_tagger_is_beside_tags_that_ignore_the_image():
    training = np.array([[1, 1, 0], [1, 1, 0], [1, 0, 0], [1, 1, 1]], bool)  # two tags on average: 0 and 1
    validation = np.array([[1, 1, 0], [1, 0, 0], [0, 0, 1], [1, 1, 0]], bool)
    found = validation_levels(training, validation)
    # Tags 0 and 1 for each image: precision 3/4, 2/4, 0/0 and recall 3/3, 2/2, 0/1 by tag; 5 of 8 and of 6.
    assert found["baseline"]["class_f1"] == pytest.approx(200 * (5 / 12) * (2 / 3) / (5 / 12 + 2 / 3))
    assert found["baseline"]["pooled_f1"] == pytest.approx(200 * (5 / 8) * (5 / 6) / (5 / 8 + 5 / 6))
    for each in found.values():
        assert each["f1_sum"] == each["class_f1"] + each["image_f1"]
    same = np.ones((3, 2), bool)
    assert validation_levels(same, same)["chance"]["f1_sum"] == 200
    assert validation_levels(training[:0], validation) == {}
