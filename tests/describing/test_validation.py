import numpy as np
import pytest
import torch

from fne.describing.model import DescribingShape, new_describing_model
from fne.describing.validation import TagValidation, tag_examples
from fne.training.best_epoch import Point, Scores
from tests.support.tagging import inputs, scenes, settings, write_world


@pytest.fixture(scope="module")
def validation(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    write_world(folder, scenes(80))
    return inputs(folder, settings()).validation


def tagger(outputs=23, concepts=22):
    shape = DescribingShape(
        22, "raw", concepts, 0, "concepts" if concepts else "embedding", outputs, 4, 8, "gru", "state"
    )
    return new_describing_model(shape, 0)


def test_a_concept_head_that_knows_the_truth_has_a_perfect_ranking(validation):
    made = tagger(outputs=0)
    names = inputs_order(validation)
    with torch.no_grad():
        made.concept_head.concepts.weight.copy_(names)
    scores = TagValidation(validation).scores(made, "concept_head")
    assert scores.name == "mAP"
    assert scores.main == 100
    # Three of at most seven true tags: precision is perfect where there are at least three.
    assert scores.values["predicted_length"] == 3


def inputs_order(validation):
    """Return the map from columns of the features to concepts, found from the data."""
    rows = validation.images(range(len(validation))).numpy()
    return torch.tensor(
        [
            [float((rows[:, column] == validation.labels[:, concept]).all()) for column in range(22)]
            for concept in range(22)
        ]
    )


def test_a_tagger_that_writes_is_judged_by_what_it_writes(validation):
    scores = TagValidation(validation).scores(tagger(), "jointly")
    assert scores.name == "f1_sum"
    assert scores.main == scores.values["class_f1"] + scores.values["image_f1"]
    # All outputs are equally likely, and END, the first one, wins.
    assert (scores.values["predicted_length"], scores.values["distinct"]) == (0, 1)
    assert 0 < scores.values["mAP"] < 100


def test_a_phase_of_the_concept_head_alone_is_judged_below_all_that_write(validation):
    scores = TagValidation(validation).scores(tagger(), "concept_head")
    assert scores.name == "mAP_below_100"
    assert scores.main == scores.values["mAP"] - 100


def test_a_tagger_without_a_concept_head_has_no_map(validation):
    scores = TagValidation(validation).scores(tagger(concepts=0), "jointly")
    assert "mAP" not in scores.values
    assert tag_examples(tagger(concepts=0), validation).probabilities is None


def point(distinct):
    return Point(1, 1, 0.0, {}, Scores({"f1_sum": 0.0, "distinct": float(distinct)}))


def test_the_same_tags_for_all_images_are_reported_after_five_validations():
    warning = TagValidation(range(5)).warning
    assert warning("jointly", [point(1)] * 4) is None
    assert warning("jointly", [*[point(1)] * 4, point(2)]) is None
    assert warning("concept_head", [point(1)] * 5) is None
    assert TagValidation(range(1)).warning("jointly", [point(1)] * 5) is None
    assert warning("jointly", [point(2), *[point(1)] * 5]) == (
        "the tagger ignores the images: it writes the same tags for all 5 validation images"
    )


def test_the_summary_names_every_f1():
    summary = TagValidation(range(5)).summary
    values = {
        "f1_sum": 100.0,
        "class_f1": 40.0,
        "image_f1": 60.0,
        "pooled_f1": 55.5,
        "predicted_length": 2.25,
    }
    assert summary(Point(3, 2, 0.0, {}, Scores(values))) == (
        "best epoch 3 (phase 2): validation F1 per class 40.0, per image 60.0, pooled 55.5, 2.2 tags per image"
    )
    assert "validation mAP 71.0, F1" in summary(Point(3, 2, 0.0, {}, Scores(values | {"mAP": 71.0})))
    assert np.isfinite(values["f1_sum"])
