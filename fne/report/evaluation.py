"""What the `evaluate` stage found: the metrics and, for every query, its rank and its best matches."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fne.core.errors import InputError
from fne.store.arrays import read_arrays
from fne.store.lineage import Artifact


@dataclass(frozen=True)
class Direction:
    """One way to search: each query is an image and its pool the sentences, or the reverse."""

    metrics: dict[str, float]
    query_ids: list[str]
    pool_ids: list[str]
    ranks: np.ndarray  # (queries,) of the first true item, from 1
    best: np.ndarray  # (queries, K) positions in the pool, best first
    scores: np.ndarray  # (queries, K)
    true: np.ndarray  # (queries, K) whether each of the best is a true item
    true_counts: np.ndarray  # (queries,)
    answers: np.ndarray | None  # (queries,) the true item, where each query has just one

    @property
    def pool(self) -> int:
        """How many items are searched."""
        return len(self.pool_ids)

    @property
    def recalls(self) -> dict[int, float]:
        """The recall in percent for each K, as the metrics file has it."""
        found = {int(name[2:]): value for name, value in self.metrics.items() if name.startswith("R@")}
        return dict(sorted(found.items()))


@dataclass(frozen=True)
class Evaluation:
    """Both directions over one split."""

    artifact: Artifact
    split: str
    rsum: float
    image_to_text: Direction
    text_to_image: Direction


def read_evaluation(metrics_path: Path, ranks_path: Path) -> Evaluation:
    """Read the two files of the `evaluate` stage.

    Raises:
        InputError: if one is damaged, or if they are not about the same images and captions.
    """
    ranks = read_arrays(ranks_path, "ranks")
    split = str(ranks.artifact.settings["split"])
    metrics = _read_metrics(metrics_path, split)
    images, captions = ranks.texts("image_ids"), ranks.texts("caption_ids")
    if (metrics["images"], metrics["captions"]) != (len(images), len(captions)):
        raise InputError(
            f"{metrics_path} is about {metrics['images']} images and {metrics['captions']} captions, but "
            f"{ranks_path} about {len(images)} and {len(captions)}; run `dvc repro evaluate`"
        )
    owner = ranks["caption_image"]  # (captions,)
    image_to_text = Direction(
        metrics=metrics["image_to_text"],
        query_ids=images,
        pool_ids=captions,
        ranks=ranks["image_ranks"],
        best=ranks["image_best"],
        scores=ranks["image_best_scores"],
        true=owner[ranks["image_best"]] == np.arange(len(images))[:, None],
        true_counts=np.bincount(owner, minlength=len(images)),
        answers=None,
    )
    text_to_image = Direction(
        metrics=metrics["text_to_image"],
        query_ids=captions,
        pool_ids=images,
        ranks=ranks["caption_ranks"],
        best=ranks["caption_best"],
        scores=ranks["caption_best_scores"],
        true=ranks["caption_best"] == owner[:, None],
        true_counts=np.ones(len(captions), np.int64),
        answers=owner,
    )
    return Evaluation(ranks.artifact, split, metrics["rsum"], image_to_text, text_to_image)


def _read_metrics(path: Path, split: str) -> dict[str, Any]:
    try:
        metrics = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; run `dvc repro`, or `dvc pull` to fetch it") from None
    except ValueError as error:
        raise InputError(f"{path}: not valid JSON ({error}); run `dvc repro evaluate`") from None
    expected = {"image_to_text", "text_to_image", "rsum", "images", "captions"}
    found = metrics.get(split) if isinstance(metrics, dict) else None
    if not isinstance(found, dict) or not expected <= found.keys():
        raise InputError(
            f"{path}: expected {', '.join(sorted(expected))} under '{split}'; run `dvc repro evaluate`"
        )
    return found
