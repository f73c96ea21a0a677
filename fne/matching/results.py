"""What a training found, in numbers: `metrics/training.json`, by which experiments are chosen.

The figures are those of the validation split. The test split serves only to report what was
chosen; choosing by it would overstate the result.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fne.evaluation.metrics.collapse import not_started
from fne.evaluation.metrics.recall import (
    RECALLS,
    Metrics,
    has_started,
    small_split_warning,
    validation_metrics,
)

if TYPE_CHECKING:
    from fne.training.finished_runs import Finished

DIRECTIONS = ("image_to_text", "text_to_image")


def training_metrics(done: "Finished", caption_counts: np.ndarray) -> dict[str, Any]:
    """Return the validation of the weights that training kept, and how the training went.

    Args:
        done: the finished training.
        caption_counts: the number of captions of each image that it was validated on (images).
    """
    return {
        **_validation(done.kept.scores.values, caption_counts),
        "best_epoch": done.kept.epoch,
        "epochs": done.points[-1].epoch,
        "updates": done.updates,
        "collapsed": done.collapsed,
    }


def imported_metrics(values: Metrics, caption_counts: np.ndarray) -> dict[str, Any]:
    """Return the validation of imported vectors, which nothing was trained for.

    Args:
        values: what `fne.evaluation.metrics.recall.retrieval_values` returned.
        caption_counts: the number of captions of each image that they were validated on (images).
    """
    untrained = {"best_epoch": 0, "epochs": 0, "updates": 0, "collapsed": False}
    return _validation(values, caption_counts) | untrained


def _validation(values: Metrics, caption_counts: np.ndarray) -> dict[str, Any]:
    return {
        "validation": validation_metrics(values, caption_counts),
        "started": has_started(values["rsum"], caption_counts),
    }


def kept(found: Mapping[str, Any], phase: int) -> str:
    """Say which epoch was kept, and of which phase; a closed form alone has no epochs.

    Example:
        >>> kept({"best_epoch": 0, "epochs": 21}, 1)
        'no epoch was better than its start, which is kept'
    """
    if found["best_epoch"] == 0 < found["epochs"]:
        return "no epoch was better than its start, which is kept"
    return f"best epoch {found['best_epoch']} (phase {phase})"


def summary(found: Mapping[str, Any]) -> str:
    """Describe the validation in one line.

    Args:
        found: what `training_metrics` or `imported_metrics` returned.
    """
    validation = found["validation"]
    recalls = {
        direction: " / ".join(f"{validation[direction][f'R@{k}']:.1f}" for k in RECALLS)
        for direction in DIRECTIONS
    }
    return (
        f"validation rsum {validation['rsum']:.1f}, guessing {validation['guessing']:.1f}, sentences for "
        f"images {recalls['image_to_text']}, images for sentences {recalls['text_to_image']}"
    )


def warnings(found: Mapping[str, Any], method: str, losses: Sequence[str] = ()) -> list[str]:
    """Return what is wrong: the training did not start, or the validation says little.

    Args:
        found: what `training_metrics` or `imported_metrics` returned.
        method: a value of `train.method`, or `imported`.
        losses: the loss of each phase.
    """
    validation = found["validation"]
    small = small_split_warning(validation["images"], validation["guessing"], len(RECALLS))
    stuck = not_started(
        validation["rsum"],
        validation["guessing"],
        losses,
        found["epochs"],
        found["updates"],
        found["collapsed"],
        method,
    )
    return [*[f"validation: {small}"] * bool(small), *[stuck] * (not found["started"])]
