"""Scores of predicted labels: precision, recall and F1 in three averages, and mean average precision.

Labels are masks (images, labels). Papers use the same abbreviations for different averages, so these have
names that cannot be confused:

- `class_*`: precision and recall are averaged over labels. Papers write C-P, C-R, C-F1.
- `image_*`: precision and recall are averaged over images. Some papers write O-P, O-R, O-F1.
- `pooled_*`: hits are counted over all images and labels ("micro"). Later papers write O-P, O-R, O-F1.

`class_f1` and `image_f1` are harmonic means **of the two means**, as in papers on image tagging.
`class_f1_mean` and `image_f1_mean` are means of F1, which scikit-learn calls macro and samples F1.

A precision without predictions and a recall without true labels are 0/0. They count as 0, as does an
F1 of two zeros, and `empty_*` tells how often that happened. All scores are in percent.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fne.core.errors import InputError

Metrics = dict[str, float]
_AVERAGES = ("class", "image", "pooled")


@dataclass(frozen=True)
class LabelCounts:
    """Hits, predictions and true labels of some images: what all averages need."""

    predicted: np.ndarray  # (images, labels), bool
    true: np.ndarray  # (images, labels), bool

    @classmethod
    def of(cls, predicted: np.ndarray, true: np.ndarray) -> "LabelCounts":
        """Check two masks of the same shape."""
        masks = {"predicted": np.asarray(predicted), "true": np.asarray(true)}
        if masks["predicted"].shape != masks["true"].shape or masks["true"].ndim != 2:
            raise InputError(
                f"labels: predictions have shape {masks['predicted'].shape} and true labels "
                f"{masks['true'].shape}; both must be (images, labels)"
            )
        if not masks["true"].size:
            raise InputError(f"labels: nothing to score, the shape is {masks['true'].shape}")
        for name, mask in masks.items():
            if mask.dtype != bool and not np.isin(mask, (0, 1)).all():
                raise InputError(f"labels: {name} labels must be 0 or 1")
        return cls(masks["predicted"].astype(bool), masks["true"].astype(bool))

    @cached_property
    def hits(self) -> np.ndarray:
        """Labels that are predicted and true (images, labels)."""
        both: np.ndarray = self.predicted & self.true
        return both


def label_metrics(predicted: np.ndarray, true: np.ndarray) -> Metrics:
    """Return precision, recall and F1 by class, by image and pooled, in percent.

    It also returns how many classes and images had no prediction or no true label (`empty_predicted_classes`,
    …), and the mean number of labels per image (`predicted_length`, `true_length`).

    Example:
        >>> found = label_metrics(np.array([[1, 1], [0, 0]]), np.array([[1, 0], [1, 0]]))
        >>> found["class_precision"], found["image_precision"], found["pooled_precision"]
        (50.0, 25.0, 50.0)
    """
    counts = LabelCounts.of(predicted, true)
    found = {
        name: float(value[0]) for name, value in averages_of_draws(counts, np.ones((1, len(true)))).items()
    }
    for axis, what in ((0, "classes"), (1, "images")):
        found[f"empty_predicted_{what}"] = float((~counts.predicted.any(axis=axis)).sum())
        found[f"empty_true_{what}"] = float((~counts.true.any(axis=axis)).sum())
    found["predicted_length"] = float(counts.predicted.sum(axis=1).mean())
    found["true_length"] = float(counts.true.sum(axis=1).mean())
    return found


def per_class(predicted: np.ndarray, true: np.ndarray) -> dict[str, np.ndarray]:
    """Return every label's precision, recall and F1 in percent, with its predicted and true images."""
    counts = LabelCounts.of(predicted, true)
    hits, answers, truths = (each.sum(axis=0) for each in (counts.hits, counts.predicted, counts.true))
    precision, recall = 100 * _ratio(hits, answers), 100 * _ratio(hits, truths)
    return {
        "precision": precision,
        "recall": recall,
        "f1": _harmonic(precision, recall),
        "predicted": answers,
        "true": truths,
    }


def average_precisions(scores: np.ndarray, true: np.ndarray) -> np.ndarray:
    """Return the average precision of every label in percent (labels); NaN where no image has the label.

    It is the sum of the precisions at every threshold, weighted with the gain in recall. Images with
    equal scores enter together. Scores and 0/1 or boolean truth are both (images, labels).
    """
    truth = LabelCounts.of(true, true).true
    check_scores(scores, truth)
    values = np.full(truth.shape[1], np.nan)
    for label in np.flatnonzero(truth.any(axis=0)):
        times = np.ones((1, len(truth)))
        values[label] = average_precision_of_draws(scores[:, label], truth[:, label], times)[0]
    return values


def mean_average_precision(scores: np.ndarray, true: np.ndarray) -> float:
    """Return the mean of `average_precisions` over the labels that some image has, in percent."""
    values = average_precisions(scores, true)
    if np.isnan(values).all():
        raise InputError("labels: no image has a label, and mAP is not defined; score images with labels")
    return float(np.nanmean(values))


def top_k(scores: np.ndarray, k: int) -> np.ndarray:
    """Return the mask of each image's `k` highest scores, the lower label number on ties (images, labels)."""
    if np.isnan(scores).any():
        raise InputError(f"labels: {np.isnan(scores).sum()} of {scores.size} scores are NaN")
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    mask = np.zeros(scores.shape, dtype=bool)
    np.put_along_axis(mask, order, True, axis=1)
    return mask


def averages_of_draws(counts: LabelCounts, times: np.ndarray) -> dict[str, np.ndarray]:
    """Return every average for each sample, given how often it draws each image (samples, images)."""
    images = times.sum(axis=1)
    by_class = [times @ each.astype(float) for each in (counts.hits, counts.predicted, counts.true)]
    hits, answers, truths = (each.sum(axis=1) for each in (counts.hits, counts.predicted, counts.true))
    class_p, class_r = _ratio(by_class[0], by_class[1]), _ratio(by_class[0], by_class[2])  # (samples, labels)
    image_p, image_r = _ratio(hits, answers), _ratio(hits, truths)  # (images)
    rates = {
        "class": (class_p.mean(axis=1), class_r.mean(axis=1)),
        "image": (times @ image_p / images, times @ image_r / images),
        "pooled": (_ratio(times @ hits, times @ answers), _ratio(times @ hits, times @ truths)),
    }
    found = {}
    for name in _AVERAGES:
        precision, recall = rates[name]
        found[f"{name}_precision"] = 100 * precision
        found[f"{name}_recall"] = 100 * recall
        found[f"{name}_f1"] = 100 * _harmonic(precision, recall)
    found["class_f1_mean"] = 100 * _harmonic(class_p, class_r).mean(axis=1)
    found["image_f1_mean"] = 100 * (times @ _harmonic(image_p, image_r)) / images
    return found


def average_precision_of_draws(scores: np.ndarray, true: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Return the average precision of one label in percent (samples); NaN without positives."""
    order = np.argsort(-scores, kind="stable")
    last = np.append(np.flatnonzero(np.diff(scores[order])), len(order) - 1)  # the last of equal scores
    hits = np.cumsum(times[:, order] * true[order], axis=1)[:, last]  # (samples, thresholds)
    seen = np.cumsum(times[:, order], axis=1)[:, last]
    gains = np.diff(hits, axis=1, prepend=0)
    totals = (gains * _ratio(hits, seen)).sum(axis=1)
    positives = hits[:, -1]
    values: np.ndarray = np.where(positives > 0, 100 * totals / np.maximum(positives, 1), np.nan)
    return values


def check_scores(scores: np.ndarray, true: np.ndarray) -> None:
    """Refuse scores (images, labels) that do not fit the true labels, or that are not numbers."""
    if scores.shape != true.shape:
        raise InputError(
            f"labels: scores have shape {scores.shape} and true labels {true.shape}; they must be equal"
        )
    if np.isnan(scores).any():
        raise InputError(f"labels: {np.isnan(scores).sum()} of {scores.size} scores are NaN")


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Divide, with 0/0 = 0."""
    quotient: np.ndarray = np.divide(part, whole, out=np.zeros(np.shape(part)), where=whole != 0)
    return quotient


def _harmonic(precision: np.ndarray, recall: np.ndarray) -> np.ndarray:
    return _ratio(2 * precision * recall, precision + recall)
