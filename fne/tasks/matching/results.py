"""What a training found, in numbers: `metrics/training.json`, by which experiments are chosen.

The figures are those of the validation split. The test split serves only to report what was
chosen; choosing by it would overstate the result.
"""

from collections.abc import Mapping
from typing import Any

from fne.metrics.collapse import not_started
from fne.metrics.recall import RECALLS, chance_of_rsum, has_started, small_split_warning
from fne.tasks.matching.data import Pairs
from fne.tasks.matching.settings import Train
from fne.training.result_cache import Finished

DIRECTIONS = ("image_to_text", "text_to_image")


def training_metrics(done: Finished, validation: Pairs) -> dict[str, Any]:
    """Return the validation of the weights that training kept, and how the training went.

    Args:
        done: the finished training.
        validation: the images and captions that it was validated on.
    """
    kept, counts = done.kept, validation.caption_counts
    found: dict[str, Any] = {direction: {} for direction in DIRECTIONS}
    for name, value in kept.scores.values.items():
        direction, _, metric = name.partition("/")
        if metric:
            found[direction][metric] = value
    return {
        "validation": found
        | {
            "rsum": kept.scores.main,
            "guessing": chance_of_rsum(counts),
            "images": len(counts),
            "captions": int(counts.sum()),
        },
        "best_epoch": kept.epoch,
        "epochs": done.points[-1].epoch,
        "updates": done.updates,
        "started": has_started(kept.scores.main, counts),
        "collapsed": done.collapsed,
    }


def summary(found: Mapping[str, Any], phase: int) -> str:
    """Describe a training in one line.

    Args:
        found: what `training_metrics` returned.
        phase: the phase of the best epoch, counted from 1.
    """
    validation = found["validation"]
    recalls = {
        direction: " / ".join(f"{validation[direction][f'R@{k}']:.1f}" for k in RECALLS)
        for direction in DIRECTIONS
    }
    return (
        f"best epoch {found['best_epoch']} (phase {phase}): validation rsum {validation['rsum']:.1f}, "
        f"guessing {validation['guessing']:.1f}, sentences for images {recalls['image_to_text']}, images for "
        f"sentences {recalls['text_to_image']}"
    )


def warnings(found: Mapping[str, Any], settings: Train) -> list[str]:
    """Return what is wrong with a training: it did not start, or its validation says little."""
    validation = found["validation"]
    small = small_split_warning(validation["images"], validation["guessing"], len(RECALLS))
    stuck = not_started(
        validation["rsum"],
        validation["guessing"],
        settings.loss_titles(),
        found["epochs"],
        found["updates"],
        found["collapsed"],
        settings.method,
    )
    return [*[f"validation: {small}"] * bool(small), *[stuck] * (not found["started"])]
