"""The evaluation of a split: the ranks of all its images and captions, and their summary.

It leaves the metrics, their confidence intervals, tables for `dvc plots`, and the ranks of all queries.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fne.core.errors import InputError
from fne.core.processes import ALONE, Processes
from fne.evaluation.curves import write_curves
from fne.evaluation.intervals import LEVEL, SAMPLES, Ranked, as_bounds, intervals
from fne.evaluation.metrics.ranks import Ranking, Similarity, rank
from fne.evaluation.metrics.recall import (
    chance_of_rsum,
    chosen_by,
    has_started,
    mean_over_folds,
    small_split_warning,
    sum_of_recalls,
    summarize,
)
from fne.evaluation.protocols import Evaluate, metrics_name
from fne.evaluation.ranks_file import RANKS
from fne.store.arrays import write_arrays
from fne.store.artifact import Lineage
from fne.store.catalog import Captioned
from fne.store.checksums import write_metrics
from fne.store.rows import Rows

# The arrays of a ranking, in the order of the file.
RANKING = (
    *("image_ranks", "caption_ranks", "image_best", "image_best_scores"),
    *("caption_best", "caption_best_scores", "image_ties", "caption_ties"),
)


@dataclass(frozen=True)
class Evaluation:
    """The queries of a split in order, and their rankings, each within its fold."""

    image_ids: list[str]
    caption_ids: list[str]
    caption_image: np.ndarray  # (captions): the position of each caption's image
    folds: np.ndarray  # (images): the fold of each image
    rankings: list[Ranking]  # per fold; positions count from the start of the fold

    def metrics(self, recalls: Sequence[int]) -> dict[str, Any]:
        """Return the mean summary over the folds, and the number of queries with ties, by direction."""
        images = [summarize(fold.image_ranks.numpy(), recalls) for fold in self.rankings]
        captions = [summarize(fold.caption_ranks.numpy(), recalls) for fold in self.rankings]
        image_to_text, text_to_image = mean_over_folds(images), mean_over_folds(captions)
        arrays = self.arrays()
        return {
            "image_to_text": image_to_text,
            "text_to_image": text_to_image,
            "rsum": sum_of_recalls(image_to_text, text_to_image),
            "chance": float(np.mean([chance_of_rsum(counts, recalls) for counts in self.caption_counts()])),
            "ties": {
                "image_to_text": int(np.count_nonzero(arrays["image_ties"])),
                "text_to_image": int(np.count_nonzero(arrays["caption_ties"])),
            },
            "images": len(self.image_ids),
            "captions": len(self.caption_ids),
        }

    def has_started(self) -> bool:
        """Return whether the scores are clearly above chance, in the first fold."""
        ranking = self.rankings[0]
        found = [summarize(ranks.numpy()) for ranks in (ranking.image_ranks, ranking.caption_ranks)]
        return has_started(sum_of_recalls(*found), self.caption_counts()[0])

    def caption_counts(self) -> list[np.ndarray]:
        """Return how many captions each image has, per fold."""
        counts = np.bincount(self.caption_image, minlength=len(self.folds))
        return [counts[self.folds == fold] for fold in range(len(self.rankings))]

    def intervals(self, recalls: Sequence[int]) -> dict[str, Any]:
        """Return `low` and `high` of the interval of each metric, nested like the metrics."""
        arrays = self.arrays()
        ranked = Ranked(arrays["image_ranks"], arrays["caption_ranks"], self.caption_image, self.folds)
        nested: dict[str, Any] = {}
        for name, bounds in intervals(ranked, recalls).items():
            direction, _, metric = name.rpartition(".")
            (nested.setdefault(direction, {}) if direction else nested)[metric] = as_bounds(bounds)
        return nested | {"level": LEVEL, "samples": SAMPLES}

    def stored(self) -> dict[str, np.ndarray | list[str]]:
        """Return the content of `ranks.h5`: ids and arrays."""
        return {"image_ids": self.image_ids, "caption_ids": self.caption_ids, **self.arrays()}

    def arrays(self) -> dict[str, np.ndarray]:
        """Return ranks, ties and best matches of all queries; positions count from the first fold."""
        starts = np.searchsorted(self.folds, np.arange(len(self.rankings)))  # the first image of each fold
        caption_starts = np.searchsorted(self.caption_image, starts)
        first = {"image_best": caption_starts, "caption_best": starts}
        found = {"caption_image": self.caption_image, "folds": self.folds}
        for name in RANKING:
            values = [getattr(fold, name).numpy() for fold in self.rankings]
            if name in first:
                values = [best + start for best, start in zip(values, first[name], strict=True)]
            found[name] = np.concatenate(values)
        return found


def evaluate(
    folds: Sequence[Sequence[Captioned]],
    images: Rows,
    captions: Rows,
    similarity: Similarity,
    top: int,
    device: torch.device,
    processes: Processes = ALONE,
) -> Evaluation:
    """Rank the images and captions of each fold against each other."""
    captioned = [record for fold in folds for record in fold]
    counts = [len(record.captions) for record in captioned]
    return Evaluation(
        image_ids=[record.id for record in captioned],
        caption_ids=[caption_id for record in captioned for caption_id in record.caption_ids],
        caption_image=np.repeat(np.arange(len(captioned)), counts),
        folds=np.repeat(np.arange(len(folds)), [len(fold) for fold in folds]),
        rankings=[_rank(fold, images, captions, similarity, top, device, processes) for fold in folds],
    )


def _rank(
    captioned: Sequence[Captioned],
    images: Rows,
    captions: Rows,
    similarity: Similarity,
    top: int,
    device: torch.device,
    processes: Processes,
) -> Ranking:
    caption_ids = [caption_id for record in captioned for caption_id in record.caption_ids]
    caption_image = np.repeat(np.arange(len(captioned)), [len(record.captions) for record in captioned])
    try:
        return rank(
            torch.from_numpy(images.read([record.id for record in captioned])).to(device),
            torch.from_numpy(captions.read(caption_ids)).to(device),
            torch.from_numpy(caption_image),
            similarity,
            top,
            processes,
        )
    except ValueError as error:
        raise InputError(f"{images.artifact.path}, {captions.artifact.path}: {error}; train again") from None


@dataclass(frozen=True)
class Places:
    """Where the results of an evaluation are written."""

    metrics: Path
    intervals: Path
    curves: Path
    ranks: Path


def write_results(
    evaluation: Evaluation,
    settings: Evaluate,
    lineage: Lineage,
    places: Places,
    similarity: str | None = None,
) -> tuple[str, list[str]]:
    """Write all results; return the main one as a line, and warnings if it says little or is too high.

    `similarity` is recorded for vectors that no model made, whose settings would name it.
    """
    name = metrics_name(settings.split, settings.protocol)
    made_with = settings.model_dump() | {"name": name} | ({"similarity": similarity} if similarity else {})
    write_arrays(places.ranks, RANKS.name, evaluation.stored(), made_with, lineage, {"evaluate": {}})
    model = lineage.get("tuned", lineage.get("model", {})).get("settings", {})
    # As in the paper, a run did not start if its scores of validation and of the scored split are both low.
    started = {"started": model["started"] or evaluation.has_started()} if "started" in model else {}
    found = evaluation.metrics(settings.recalls) | started
    bounds = evaluation.intervals(settings.recalls)
    write_metrics(places.metrics, {name: found})
    write_metrics(places.intervals, {name: bounds})
    arrays, largest = evaluation.arrays(), max(int(counts.sum()) for counts in evaluation.caption_counts())
    write_curves(
        places.curves,
        {"image_to_text": arrays["image_ranks"], "text_to_image": arrays["caption_ranks"]},
        {"image_to_text": evaluation.folds, "text_to_image": evaluation.folds[evaluation.caption_image]},
        largest,
    )
    fold_images = len(evaluation.caption_counts()[0])
    chooses = model.get("keep") == "best" and model.get("method", "steps") == "steps"
    warnings = [
        small_split_warning(fold_images, found["chance"], len(settings.recalls)),
        chosen_by(name) if chooses else None,
    ]
    return (
        f"{name}: {found['images']} images, sum of recalls {found['rsum']:.1f} "
        f"({bounds['rsum']['low']:.1f} to {bounds['rsum']['high']:.1f}), chance {found['chance']:.1f}",
        [warning for warning in warnings if warning],
    )
