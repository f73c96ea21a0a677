import numpy as np
import pytest
from sklearn.metrics import average_precision_score, precision_recall_fscore_support

from fne.core.errors import InputError
from fne.evaluation.intervals import label_intervals, map_interval
from fne.evaluation.metrics.tag_metrics import (
    _harmonic,
    average_precisions,
    label_metrics,
    mean_average_precision,
    per_class,
    top_k,
)

# Label 2 is never predicted, label 3 never true; image 2 has no prediction, image 3 no true label.
PREDICTED = np.array([[1, 1, 0, 0], [0, 0, 0, 0], [1, 0, 0, 1]], dtype=bool)
TRUE = np.array([[1, 0, 1, 0], [1, 1, 0, 0], [0, 0, 0, 0]], dtype=bool)


def drawn(seed, images=None, labels=None):
    generator = np.random.default_rng(seed)
    shape = (images or generator.integers(1, 12), labels or generator.integers(1, 8))
    density = generator.random()
    return generator.random(shape) < density, generator.random(shape) < density


def test_averages_with_0_by_0_are_those_computed_by_hand():
    found = label_metrics(PREDICTED, TRUE)
    # By class: precision 1/2, 0/1, 0/0, 0/1; recall 1/2, 0/1, 0/1, 0/0.
    assert found["class_precision"] == pytest.approx(100 * 0.5 / 4)
    assert found["class_recall"] == pytest.approx(100 * 0.5 / 4)
    assert found["class_f1"] == pytest.approx(12.5)
    # By image: precision 1/2, 0/0, 0/2; recall 1/2, 0/2, 0/0.
    assert found["image_precision"] == pytest.approx(100 * 0.5 / 3)
    assert found["image_recall"] == pytest.approx(100 * 0.5 / 3)
    # Pooled: 1 hit, 4 predictions, 4 true labels.
    assert found["pooled_precision"] == found["pooled_recall"] == found["pooled_f1"] == 25
    assert found["empty_predicted_classes"] == found["empty_true_classes"] == 1
    assert found["empty_predicted_images"] == found["empty_true_images"] == 1
    assert found["predicted_length"] == pytest.approx(4 / 3)
    assert found["true_length"] == pytest.approx(4 / 3)


@pytest.mark.parametrize("seed", range(60))
def test_averages_are_those_of_scikit_learn(seed):
    predicted, true = drawn(seed)
    if predicted.shape[1] == 1:  # scikit-learn takes one column for a binary problem
        predicted, true = np.tile(predicted, 2), np.tile(true, 2)
    found = label_metrics(predicted, true)
    names = {"class": "macro", "image": "samples", "pooled": "micro"}
    for ours, theirs in names.items():
        precision, recall, f1, _ = precision_recall_fscore_support(
            true, predicted, average=theirs, zero_division=0
        )
        assert found[f"{ours}_precision"] == pytest.approx(100 * precision)
        assert found[f"{ours}_recall"] == pytest.approx(100 * recall)
        mean_f1 = found["pooled_f1"] if ours == "pooled" else found[f"{ours}_f1_mean"]
        assert mean_f1 == pytest.approx(100 * f1)
        harmonic = 2 * precision * recall / (precision + recall) if precision + recall else 0
        assert found[f"{ours}_f1"] == pytest.approx(100 * harmonic)


@pytest.mark.parametrize("seed", range(30))
def test_every_class_is_scored_as_scikit_learn_does(seed):
    predicted, true = drawn(seed, labels=5)
    found = per_class(predicted, true)
    precision, recall, f1, support = precision_recall_fscore_support(
        true, predicted, average=None, zero_division=0
    )
    assert found["precision"] == pytest.approx(100 * precision)
    assert found["recall"] == pytest.approx(100 * recall)
    assert found["f1"] == pytest.approx(100 * f1)
    assert found["true"].tolist() == support.tolist()


@pytest.mark.parametrize("seed", range(60))
def test_average_precision_is_that_of_scikit_learn_with_ties(seed):
    _, true = drawn(seed, images=20)
    scores = np.random.default_rng(seed).integers(6, size=true.shape) / 5.0
    values = average_precisions(scores, true)
    for label in range(true.shape[1]):
        if true[:, label].any():
            expected = average_precision_score(true[:, label], scores[:, label])
            assert values[label] == pytest.approx(100 * expected)
        else:
            assert np.isnan(values[label])
    if true.any():
        assert mean_average_precision(scores, true) == pytest.approx(np.nanmean(values))


# Recall, precision and F1 by class and by image, as printed by Liu et al. (2017), Tables 1 and 2.
PRINTED = [
    [45.03, 45.60, 45.31, 70.77, 51.32, 59.50],
    [59.30, 52.50, 55.70, 59.80, 61.40, 60.59],  # printed 60.70
    [63.13, 71.38, 67.00, 73.05, 77.41, 75.16],
]


@pytest.mark.parametrize("row", PRINTED)
def test_a_printed_f1_is_the_harmonic_mean_of_the_printed_means(row):
    assert _harmonic(np.array(row[0]), np.array(row[1])) == pytest.approx(row[2], abs=0.05)
    assert _harmonic(np.array(row[3]), np.array(row[4])) == pytest.approx(row[5], abs=0.05)


def test_top_k_takes_the_lower_label_on_ties_and_all_labels_where_there_are_few():
    scores = np.array([[0.5, 0.9, 0.5, 0.1], [0.0, 0.0, 0.0, 0.0]])
    assert top_k(scores, 2).tolist() == [[True, True, False, False], [True, True, False, False]]
    assert top_k(scores, 9).all()


def test_intervals_are_those_of_scoring_each_sample():
    predicted, true = drawn(11, images=7, labels=4)
    samples = np.random.default_rng(0).integers(7, size=(50, 7))
    found = label_intervals(predicted, true, samples=50, seed=0)
    each = [label_metrics(predicted[sample], true[sample]) for sample in samples]
    for name, interval in found.items():
        assert interval == pytest.approx(np.percentile([values[name] for values in each], [2.5, 97.5]))


def test_the_interval_of_map_is_that_of_scoring_each_sample():
    _, true = drawn(4, images=9, labels=3)
    scores = np.random.default_rng(1).random(true.shape)
    samples = np.random.default_rng(0).integers(9, size=(50, 9))
    each = [mean_average_precision(scores[sample], true[sample]) for sample in samples]
    assert map_interval(scores, true, samples=50, seed=0) == pytest.approx(np.percentile(each, [2.5, 97.5]))


@pytest.mark.parametrize(
    ("predicted", "true", "message"),
    [
        (np.zeros((2, 3)), np.zeros((2, 4)), "predictions have shape \\(2, 3\\)"),
        (np.zeros(3), np.zeros(3), "both must be \\(images, labels\\)"),
        (np.zeros((0, 3)), np.zeros((0, 3)), "nothing to score"),
        (np.zeros((3, 0)), np.zeros((3, 0)), "nothing to score"),
        (np.full((1, 2), 0.5), np.zeros((1, 2)), "predicted labels must be 0 or 1"),
        (np.zeros((1, 2)), np.array([[np.nan, 1]]), "true labels must be 0 or 1"),
    ],
)
def test_masks_that_do_not_fit_are_refused(predicted, true, message):
    with pytest.raises(InputError, match=message):
        label_metrics(predicted, true)


def test_nan_scores_are_refused():
    scores = np.array([[0.5, np.nan]])
    for metric in (average_precisions, mean_average_precision, map_interval):
        with pytest.raises(InputError, match="1 of 2 scores are NaN"):
            metric(scores, np.array([[1, 0]]))
    with pytest.raises(InputError, match="1 of 2 scores are NaN"):
        top_k(scores, 1)
    with pytest.raises(InputError, match="scores have shape"):
        average_precisions(scores, np.array([[1, 0, 0]]))


def test_map_without_any_label_is_refused():
    for metric in (mean_average_precision, map_interval):
        with pytest.raises(InputError, match="no image has a label"):
            metric(np.zeros((2, 2)), np.zeros((2, 2)))
