"""Exact ranks in both directions.

The rank of an image is that of its best true caption among all captions, the rank of
a caption that of its image among all images; 1 is best. A wrong item that scores the
same as the true one counts as better: otherwise a model that maps everything to one
point would rank everything first.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

Similarity = Callable[[Tensor, Tensor], Tensor]
BLOCK = 256


@dataclass(frozen=True)
class Ranking:
    """Ranks, and the best few for every query, best first."""

    image_ranks: Tensor  # (images)
    caption_ranks: Tensor  # (captions)
    image_best: Tensor  # (images, top): positions of captions
    image_best_scores: Tensor
    caption_best: Tensor  # (captions, top): positions of images
    caption_best_scores: Tensor


def rank(
    images: Tensor, captions: Tensor, caption_image: Tensor, similarity: Similarity, top: int
) -> Ranking:
    """Rank all captions for every image and all images for every caption.

    Args:
        images: vectors (images, dim); every image has at least one caption.
        captions: vectors (captions, dim).
        caption_image: the position of each caption's image (captions).
        similarity: see `fne.ranking.similarities`.
        top: how many of the best to return for each query, or as many as there are; finding them
            takes most of the time, and 0 saves it.

    Raises:
        ValueError: if a score is NaN, which would compare as neither better nor worse.
    """
    positions = torch.arange(len(captions))
    true_scores = torch.empty(len(captions))
    for start, scores in _score_blocks(images, captions, similarity):
        inside = (caption_image >= start) & (caption_image < start + len(scores))
        true_scores[inside] = scores[caption_image[inside] - start, positions[inside]]

    image_ranks, image_best, image_best_scores = [], [], []
    caption_ranks = torch.ones(len(captions), dtype=torch.int64)
    caption_best = torch.empty((len(captions), 0), dtype=torch.int64)
    caption_best_scores = torch.empty((len(captions), 0))
    for start, scores in _score_blocks(images, captions, similarity):
        numbers = torch.arange(start, start + len(scores))
        wrong = numbers[:, None] != caption_image[None, :]  # (block, captions)
        best_true = scores.masked_fill(wrong, -torch.inf).amax(dim=1)
        image_ranks.append(1 + ((scores >= best_true[:, None]) & wrong).sum(dim=1))
        caption_ranks += ((scores >= true_scores) & wrong).sum(dim=0)
        best_scores, best = _best(scores, top)
        image_best.append(best)
        image_best_scores.append(best_scores)
        if top:
            candidates = torch.cat([caption_best_scores, scores.T], dim=1)
            ids = torch.cat([caption_best, numbers.expand(len(captions), -1)], dim=1)
            caption_best_scores, chosen = _best(candidates, top)
            caption_best = ids.gather(1, chosen)
    return Ranking(
        torch.cat(image_ranks),
        caption_ranks,
        torch.cat(image_best),
        torch.cat(image_best_scores),
        caption_best,
        caption_best_scores,
    )


def _score_blocks(images: Tensor, captions: Tensor, similarity: Similarity) -> Iterator[tuple[int, Tensor]]:
    for start in range(0, len(images), BLOCK):
        scores = similarity(images[start : start + BLOCK], captions)
        if scores.isnan().any():
            raise ValueError(f"{int(scores.isnan().sum())} scores of images {start} and following are NaN")
        yield start, scores


def _best(scores: Tensor, top: int) -> tuple[Tensor, Tensor]:
    if top == 0:
        return scores[:, :0], torch.empty((len(scores), 0), dtype=torch.int64)
    # Stable, so that equal scores come in the order of their positions on every machine.
    ordered, positions = scores.sort(dim=1, descending=True, stable=True)
    return ordered[:, :top], positions[:, :top]
