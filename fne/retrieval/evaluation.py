"""The evaluation of a split: ranks of all its images and captions, and their summary."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fne.core.errors import InputError
from fne.core.processes import ALONE, Processes
from fne.ranking.blocks import Similarity
from fne.ranking.intervals import LEVEL, SAMPLES, Ranked, intervals
from fne.ranking.metrics import mean_over_folds, sum_of_recalls, summarize
from fne.ranking.ranks import Ranking, rank
from fne.store.catalog import Captioned
from fne.store.rows import Rows


@dataclass(frozen=True)
class Evaluation:
    """The queries of a split in order, and how they were ranked, each within its fold."""

    image_ids: list[str]
    caption_ids: list[str]
    caption_image: np.ndarray  # (captions): the position of each caption's image
    folds: np.ndarray  # (images): the number of each image's fold
    rankings: list[Ranking]  # of each fold; positions count from the fold's start

    def metrics(self, recalls: Sequence[int]) -> dict[str, Any]:
        """Return the summary of both directions, means over the folds, and how many queries had ties."""
        images = [summarize(fold.image_ranks.numpy(), recalls) for fold in self.rankings]
        captions = [summarize(fold.caption_ranks.numpy(), recalls) for fold in self.rankings]
        image_to_text, text_to_image = mean_over_folds(images), mean_over_folds(captions)
        arrays = self.arrays()
        return {
            "image_to_text": image_to_text,
            "text_to_image": text_to_image,
            "rsum": sum_of_recalls(image_to_text, text_to_image),
            "ties": {
                "image_to_text": int(np.count_nonzero(arrays["image_ties"])),
                "text_to_image": int(np.count_nonzero(arrays["caption_ties"])),
            },
            "images": len(self.image_ids),
            "captions": len(self.caption_ids),
        }

    def intervals(self, recalls: Sequence[int]) -> dict[str, Any]:
        """Return the intervals of the metrics, [low, high], nested as the metrics are."""
        arrays = self.arrays()
        ranked = Ranked(arrays["image_ranks"], arrays["caption_ranks"], self.caption_image, self.folds)
        nested: dict[str, Any] = {}
        for name, bounds in intervals(ranked, recalls).items():
            direction, _, metric = name.rpartition(".")
            (nested.setdefault(direction, {}) if direction else nested)[metric] = list(bounds)
        return nested | {"level": LEVEL, "samples": SAMPLES}

    def stored(self) -> dict[str, np.ndarray | list[str]]:
        """Return what `ranks.h5` keeps: ids and arrays."""
        return {"image_ids": self.image_ids, "caption_ids": self.caption_ids, **self.arrays()}

    def arrays(self) -> dict[str, np.ndarray]:
        """Return ranks, ties and the best of all queries; positions count from the start of all folds."""
        starts = np.searchsorted(self.folds, np.arange(len(self.rankings)))  # of each fold, in images
        caption_starts = np.searchsorted(self.caption_image, starts)
        image_best = [fold.image_best.numpy() for fold in self.rankings]
        caption_best = [fold.caption_best.numpy() for fold in self.rankings]
        return {
            "caption_image": self.caption_image,
            "folds": self.folds,
            "image_ranks": self._of_all("image_ranks"),
            "caption_ranks": self._of_all("caption_ranks"),
            "image_best": np.concatenate(
                [best + start for best, start in zip(image_best, caption_starts, strict=True)]
            ),
            "image_best_scores": self._of_all("image_best_scores"),
            "caption_best": np.concatenate(
                [best + start for best, start in zip(caption_best, starts, strict=True)]
            ),
            "caption_best_scores": self._of_all("caption_best_scores"),
            "image_ties": self._of_all("image_ties"),
            "caption_ties": self._of_all("caption_ties"),
        }

    def _of_all(self, name: str) -> np.ndarray:
        return np.concatenate([getattr(fold, name).numpy() for fold in self.rankings])


def evaluate(
    folds: Sequence[Sequence[Captioned]],
    images: Rows,
    captions: Rows,
    similarity: Similarity,
    top: int,
    device: torch.device,
    processes: Processes = ALONE,
) -> Evaluation:
    """Rank the images and captions of each fold against each other.

    Raises:
        InputError: if a score is NaN.
    """
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
