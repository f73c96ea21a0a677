"""Exact ranks in both directions.

The rank of an image is that of its best true caption among all captions, the rank of
a caption that of its image among all images; 1 is best. A wrong item that scores the
same as the true one counts as better: otherwise a model that maps everything to one
point would rank everything first. How often that happens is told.

A rank is a count of scores that are not below the true one, so nothing is sorted, and
each block of scores serves both directions. Several processes share the blocks, and
since counts are whole numbers, the ranks are the same for any number of processes.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fne.core.processes import ALONE, Processes
from fne.ranking.blocks import Block, Blocks, Similarity

BLOCK = 512  # images


@dataclass(frozen=True)
class Ranking:
    """Ranks, and the best few for every query, best first."""

    image_ranks: Tensor  # (images)
    caption_ranks: Tensor  # (captions)
    image_best: Tensor  # (images, top): positions of captions
    image_best_scores: Tensor
    caption_best: Tensor  # (captions, top): positions of images
    caption_best_scores: Tensor
    image_ties: Tensor  # (images): how many wrong captions score the same as the best true one
    caption_ties: Tensor  # (captions): how many wrong images score the same as the true one


def rank(
    images: Tensor,
    captions: Tensor,
    caption_image: Tensor,
    similarity: Similarity,
    top: int,
    processes: Processes = ALONE,
) -> Ranking:
    """Rank all captions for every image and all images for every caption.

    Args:
        images: vectors (images, dim); every image has at least one caption.
        captions: vectors (captions, dim) on the same device; scores are computed there.
        caption_image: the position of each caption's image (captions).
        similarity: see `fne.ranking.similarities`.
        top: how many of the best to return for each query, or as many as there are; 0 for none.
        processes: who shares the work; all of them get the whole ranking.

    Raises:
        ValueError: if an image has no caption, or if a score is NaN, which would compare as
            neither better nor worse.
    """
    owners = caption_image.cpu().numpy()
    counts = np.bincount(owners, minlength=len(images))
    if not counts.all():
        raise ValueError(f"image {int(counts.argmin())} has no caption")
    together = np.argsort(owners, kind="stable")  # the captions of an image side by side
    if (together != np.arange(len(owners))).any():
        captions, owners = captions[torch.from_numpy(together).to(captions.device)], owners[together]
    # Half precision would make ties of what differs.
    precision = torch.promote_types(images.dtype, torch.float32)
    images, captions = images.to(precision), captions.to(precision)
    by_image = _Tally(np.arange(len(images)), min(top, len(captions)), precision)
    by_caption = _Tally(together, min(top, len(images)), precision)
    blocks = Blocks(images, captions, counts, similarity, BLOCK)
    parts = range(processes.rank, len(blocks), processes.count)
    for part, block in enumerate(blocks.own()):
        true = by_image.numbers[block.images, None] == owners[block.captions]
        only_true = np.where(true, block.scores, -np.inf)
        by_image.true_scores[block.images] = only_true.max(axis=1)
        by_caption.true_scores[block.captions] = only_true.max(axis=0)
        if part in parts:
            # NaN compares as neither better nor equal: true pairs do not count against themselves.
            _add(block, np.where(true, np.float32(np.nan), block.scores), by_image, by_caption)
    for block in blocks.others(parts):
        _add(block, block.scores, by_image, by_caption)
    if processes.count > 1:
        by_image.unite(processes)
        by_caption.unite(processes)
    return Ranking(
        image_ranks=by_image.in_order(by_image.better) + 1,
        caption_ranks=by_caption.in_order(by_caption.better) + 1,
        image_best=by_image.in_order(by_image.best),
        image_best_scores=by_image.in_order(by_image.best_scores),
        caption_best=by_caption.in_order(by_caption.best),
        caption_best_scores=by_caption.in_order(by_caption.best_scores),
        image_ties=by_image.in_order(by_image.tied),
        caption_ties=by_caption.in_order(by_caption.tied),
    )


class _Tally:
    """What is known so far about queries that have these numbers."""

    def __init__(self, numbers: np.ndarray, top: int, precision: torch.dtype) -> None:
        self.numbers = numbers
        self.true_scores = torch.empty(len(numbers), dtype=precision).numpy()
        self.better = np.zeros(len(numbers), dtype=np.int32)
        self.tied = np.zeros(len(numbers), dtype=np.int32)
        self.best = np.full((len(numbers), top), np.iinfo(np.int64).max)
        self.best_scores = torch.full((len(numbers), top), -torch.inf, dtype=precision).numpy()

    def unite(self, processes: Processes) -> None:
        """Take in what the other processes know."""
        for counts in (self.better, self.tied):
            processes.add(torch.from_numpy(counts))
        if not self.best.size:
            return
        of_all = (-1, *self.best.shape)  # (processes, queries, top)
        best, scores = (
            np.concatenate(processes.gather(torch.from_numpy(each)).numpy().reshape(of_all), axis=1)
            for each in (self.best, self.best_scores)
        )
        chosen = np.lexsort((best, -scores), axis=1)[:, : self.best.shape[1]]
        self.best = np.take_along_axis(best, chosen, axis=1)
        self.best_scores = np.take_along_axis(scores, chosen, axis=1)

    def in_order(self, values: np.ndarray) -> Tensor:
        """Return values of the queries in the order of their numbers."""
        ordered = np.empty_like(values)
        ordered[self.numbers] = values
        return torch.from_numpy(ordered if ordered.dtype != np.int32 else ordered.astype(np.int64))


def _add(block: Block, wrong_scores: np.ndarray, by_image: _Tally, by_caption: _Tally) -> None:
    # Here, because compiling or loading compiled code takes a moment that only ranking should cost.
    from fne.ranking.counting import count_better, count_nan, keep_best

    unusable = count_nan(block.scores)
    if unusable:
        raise ValueError(f"{unusable} scores of images {block.images.start} and following are NaN")
    count_better(
        wrong_scores,
        by_image.true_scores[block.images],
        by_caption.true_scores[block.captions],
        by_image.better[block.images],
        by_image.tied[block.images],
        by_caption.better[block.captions],
        by_caption.tied[block.captions],
    )
    if by_image.best.shape[1]:
        keep_best(
            block.scores,
            by_image.numbers[block.images],
            by_caption.numbers[block.captions],
            by_image.best[block.images],
            by_image.best_scores[block.images],
            by_caption.best[block.captions],
            by_caption.best_scores[block.captions],
        )
