"""The evaluation of a split: ranks of all its images and captions, and their summary."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from fne.core.errors import InputError
from fne.ranking.metrics import Metrics, sum_of_recalls, summarize
from fne.ranking.ranks import Ranking, Similarity, rank
from fne.store.catalog import Captioned
from fne.store.rows import Rows


@dataclass(frozen=True)
class Evaluation:
    """The queries of a split in order, and how they were ranked."""

    image_ids: list[str]
    caption_ids: list[str]
    caption_image: np.ndarray  # (captions): the position of each caption's image
    ranking: Ranking

    def metrics(self) -> dict[str, Metrics | float | int]:
        """Return the summary of both directions."""
        image_to_text = summarize(self.ranking.image_ranks.numpy())
        text_to_image = summarize(self.ranking.caption_ranks.numpy())
        return {
            "image_to_text": image_to_text,
            "text_to_image": text_to_image,
            "rsum": sum_of_recalls(image_to_text, text_to_image),
            "images": len(self.image_ids),
            "captions": len(self.caption_ids),
        }

    def arrays(self) -> dict[str, np.ndarray | list[str]]:
        """Return what `ranks.h5` keeps."""
        return {
            "image_ids": self.image_ids,
            "caption_ids": self.caption_ids,
            "caption_image": self.caption_image,
            "image_ranks": self.ranking.image_ranks.numpy(),
            "caption_ranks": self.ranking.caption_ranks.numpy(),
            "image_best": self.ranking.image_best.numpy(),
            "image_best_scores": self.ranking.image_best_scores.numpy(),
            "caption_best": self.ranking.caption_best.numpy(),
            "caption_best_scores": self.ranking.caption_best_scores.numpy(),
        }


def evaluate(
    captioned: Sequence[Captioned], images: Rows, captions: Rows, similarity: Similarity, top: int
) -> Evaluation:
    """Rank the images and captions of one split against each other."""
    image_ids = [record.id for record in captioned]
    caption_ids = [caption_id for record in captioned for caption_id in record.caption_ids]
    caption_image = np.repeat(np.arange(len(captioned)), [len(record.captions) for record in captioned])
    try:
        ranking = rank(
            torch.from_numpy(images.read(image_ids)),
            torch.from_numpy(captions.read(caption_ids)),
            torch.from_numpy(caption_image),
            similarity,
            top,
        )
    except ValueError as error:
        raise InputError(f"{images.artifact.path}, {captions.artifact.path}: {error}; train again") from None
    return Evaluation(image_ids, caption_ids, caption_image, ranking)
