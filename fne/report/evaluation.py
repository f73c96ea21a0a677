"""What the `evaluate` stage found: metrics, how sure they are, each query's rank and best matches."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fne.core.errors import InputError
from fne.store.arrays import Arrays, read_arrays
from fne.store.lineage import Artifact

Interval = tuple[float, float]  # low, high


@dataclass(frozen=True)
class Direction:
    """One way to search: each query is an image and its pool the sentences, or the reverse.

    A protocol may have folds: then a query searches only the pool of its own fold.
    """

    metrics: dict[str, float]
    query_ids: list[str]
    pool_ids: list[str]
    ranks: np.ndarray  # (queries,) of the first true item, from 1
    best: np.ndarray  # (queries, K) positions in the pool, best first
    scores: np.ndarray  # (queries, K)
    true: np.ndarray  # (queries, K) whether each of the best is a true item
    true_counts: np.ndarray  # (queries,)
    answers: np.ndarray | None  # (queries,) the true item, where each query has just one
    folds: np.ndarray  # (queries,) from 0
    pool_folds: np.ndarray  # (pool,)
    ties: int = 0  # queries with a wrong item that scored the same as the true one
    intervals: dict[str, Interval] = field(default_factory=dict)  # of each metric, 95 %

    @property
    def pool(self) -> int:
        """How many items are searched, at most."""
        return int(np.bincount(self.pool_folds).max())

    @property
    def recalls(self) -> dict[int, float]:
        """The recall in percent for each K, as the metrics file has it."""
        found = {int(name[2:]): value for name, value in self.metrics.items() if name.startswith("R@")}
        return dict(sorted(found.items()))

    def recall(self, k: int) -> float:
        """Return the recall in percent for any K: the mean over the folds."""
        within = self.ranks <= k
        return 100 * float(np.mean([within[self.folds == fold].mean() for fold in np.unique(self.folds)]))


@dataclass(frozen=True)
class Evaluation:
    """Both directions over one split."""

    artifact: Artifact
    split: str
    protocol: str
    folds: int
    rsum: float
    rsum_interval: Interval
    image_to_text: Direction
    text_to_image: Direction


def read_evaluation(metrics_path: Path, intervals_path: Path, ranks_path: Path) -> Evaluation:
    """Read the three files of the `evaluate` stage.

    Raises:
        InputError: if one is damaged, or if they are not about the same images and captions.
    """
    ranks = read_arrays(ranks_path, "ranks")
    settings = ranks.artifact.settings
    metrics = _read_json(metrics_path, settings["name"], {"ties", "images", "captions"})
    intervals = _read_json(intervals_path, settings["name"], set())
    images, captions = ranks.texts("image_ids"), ranks.texts("caption_ids")
    if (metrics["images"], metrics["captions"]) != (len(images), len(captions)):
        raise InputError(
            f"{metrics_path} is about {metrics['images']} images and {metrics['captions']} captions, but "
            f"{ranks_path} about {len(images)} and {len(captions)}; run `dvc repro evaluate`"
        )
    return Evaluation(
        artifact=ranks.artifact,
        split=settings["split"],
        protocol=settings["protocol"],
        folds=len(np.unique(ranks["folds"])),
        rsum=metrics["rsum"],
        rsum_interval=_interval(intervals["rsum"]),
        image_to_text=_image_to_text(ranks, metrics, intervals),
        text_to_image=_text_to_image(ranks, metrics, intervals),
    )


def _image_to_text(ranks: Arrays, metrics: dict[str, Any], intervals: dict[str, Any]) -> Direction:
    owner, folds = ranks["caption_image"], ranks["folds"]  # (captions,), (images,)
    return Direction(
        metrics=metrics["image_to_text"],
        query_ids=ranks.texts("image_ids"),
        pool_ids=ranks.texts("caption_ids"),
        ranks=ranks["image_ranks"],
        best=ranks["image_best"],
        scores=ranks["image_best_scores"],
        true=owner[ranks["image_best"]] == np.arange(len(folds))[:, None],
        true_counts=np.bincount(owner, minlength=len(folds)),
        answers=None,
        folds=folds,
        pool_folds=folds[owner],
        ties=metrics["ties"]["image_to_text"],
        intervals={metric: _interval(bounds) for metric, bounds in intervals["image_to_text"].items()},
    )


def _text_to_image(ranks: Arrays, metrics: dict[str, Any], intervals: dict[str, Any]) -> Direction:
    owner, folds = ranks["caption_image"], ranks["folds"]
    return Direction(
        metrics=metrics["text_to_image"],
        query_ids=ranks.texts("caption_ids"),
        pool_ids=ranks.texts("image_ids"),
        ranks=ranks["caption_ranks"],
        best=ranks["caption_best"],
        scores=ranks["caption_best_scores"],
        true=ranks["caption_best"] == owner[:, None],
        true_counts=np.ones(len(owner), np.int64),
        answers=owner,
        folds=folds[owner],
        pool_folds=folds,
        ties=metrics["ties"]["text_to_image"],
        intervals={metric: _interval(bounds) for metric, bounds in intervals["text_to_image"].items()},
    )


def _interval(bounds: list[float]) -> Interval:
    low, high = bounds
    return low, high


def _read_json(path: Path, name: str, more: set[str]) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; run `dvc repro`, or `dvc pull` to fetch it") from None
    except ValueError as error:
        raise InputError(f"{path}: not valid JSON ({error}); run `dvc repro evaluate`") from None
    expected = {"image_to_text", "text_to_image", "rsum"} | more
    found = content.get(name) if isinstance(content, dict) else None
    if not isinstance(found, dict) or not expected <= found.keys():
        raise InputError(
            f"{path}: expected {', '.join(sorted(expected))} under '{name}'; run `dvc repro evaluate`"
        )
    return found
