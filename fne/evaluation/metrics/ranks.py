"""Exact ranks in both directions.

The rank of an image is that of its best true caption among all captions. The rank of a caption is that of its
image among all images. Rank 1 is best. A wrong item with the same score as the true one counts as better:
otherwise a model that maps everything to one point would rank everything first. Ties are returned too.

A rank is a count of scores that are not below the true score, so nothing is sorted, and each block of scores
serves both directions. Processes divide the blocks among themselves: counts are integers, so the ranks are
the same for any number of processes.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fne.core.device import download
from fne.core.processes import ALONE, Processes
from fne.evaluation.metrics import rank_counts

Similarity = Callable[[Tensor, Tensor], Tensor]
BLOCK = 512  # images per block of scores
# Up to so many scores, compiled loops take longer to load than NumPy takes to compute.
FEW_SCORES = 2**18
MULTIPLE = 16  # block sizes are rounded up to a multiple of this


@dataclass(frozen=True)
class Ranking:
    """Ranks, and the top matches of every query, best first."""

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
    """Rank all captions for each image and all images for each caption, in every process.

    Args:
        images: vectors (images, dim); every image has at least one caption.
        captions: vectors (captions, dim) on the same device; scores are computed there.
        caption_image: the position of each caption's image (captions).
        top: the number of top matches to return per query, at most as many as there are; 0 for none.

    Raises:
        ValueError: if an image has no caption, or if a score is NaN, which compares as neither better
            nor worse.
    """
    owners = caption_image.cpu().numpy()
    counts = np.bincount(owners, minlength=len(images))
    if not counts.all():
        raise ValueError(f"image {int(counts.argmin())} has no caption")
    together = np.argsort(owners, kind="stable")  # puts the captions of an image side by side
    if (together != np.arange(len(owners))).any():
        captions, owners = captions[torch.from_numpy(together).to(captions.device)], owners[together]
    # Half precision would turn different scores into ties.
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
            # NaN compares as neither better nor equal, so true pairs do not count against themselves.
            _add(block, np.where(true, np.float32(np.nan), block.scores), by_image, by_caption)
    for block in blocks.others(parts):
        _add(block, block.scores, by_image, by_caption)
    if processes.count > 1:
        by_image.merge(processes)
        by_caption.merge(processes)
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


@dataclass(frozen=True)
class Block:
    """The scores of consecutive images and consecutive captions."""

    images: slice
    captions: slice
    scores: np.ndarray  # (images, captions)


class Blocks:
    """All scores, in blocks of one shape; each score is computed once.

    A matrix product of an odd shape rounds some entries in a different order from the rest. In
    a product of 7 x 13, equal vectors get up to three different scores, and a model that maps
    everything to one point would be ranked by rounding errors. So all blocks have the same
    shape, a multiple of `MULTIPLE`, padded with zeros where needed.

    Captions (captions, dim) are in the order of their images, with `counts` (images) of each image; `size` is
    the number of images per block.
    """

    def __init__(
        self, images: Tensor, captions: Tensor, counts: np.ndarray, similarity: Similarity, size: int
    ) -> None:
        ends = np.concatenate([[0], np.cumsum(counts)])
        bounds = [(low, min(low + size, len(counts))) for low in range(0, len(counts), size)]
        self._parts = [(slice(low, high), slice(int(ends[low]), int(ends[high]))) for low, high in bounds]
        widest = max(part.stop - part.start for _, part in self._parts)
        self._shape = (_round_up(min(size, len(counts))), _round_up(widest))
        self._images, self._captions, self._similarity = images, captions, similarity

    def __len__(self) -> int:
        """The number of parts into which images and captions are divided."""
        return len(self._parts)

    def own(self) -> Iterator[Block]:
        """Yield the blocks of images with their own captions, part by part; they contain all true pairs."""
        for images, captions in self._parts:
            yield self._block(images, captions, self._padded(captions))

    def others(self, parts: Iterable[int]) -> Iterator[Block]:
        """Yield all other blocks of the captions of the given parts."""
        for own, captions in (self._parts[part] for part in parts):
            vectors = self._padded(captions)
            for images, _ in self._parts:
                if images != own:
                    yield self._block(images, captions, vectors)

    def _padded(self, captions: slice) -> Tensor:
        return _pad(self._captions[captions], self._shape[1])

    def _block(self, images: slice, captions: slice, caption_vectors: Tensor) -> Block:
        scores = self._similarity(_pad(self._images[images], self._shape[0]), caption_vectors)
        valid = scores[: images.stop - images.start, : captions.stop - captions.start]
        return Block(images, captions, download(valid.contiguous()).numpy())


class _Tally:
    """The counts and top matches so far, of queries with these indices."""

    def __init__(self, numbers: np.ndarray, top: int, precision: torch.dtype) -> None:
        self.numbers = numbers
        self.true_scores = torch.empty(len(numbers), dtype=precision).numpy()
        self.better = np.zeros(len(numbers), dtype=np.int32)
        self.tied = np.zeros(len(numbers), dtype=np.int32)
        self.best = np.full((len(numbers), top), np.iinfo(np.int64).max)
        self.best_scores = torch.full((len(numbers), top), -torch.inf, dtype=precision).numpy()

    def merge(self, processes: Processes) -> None:
        """Combine this with the results of the other processes."""
        for counts in (self.better, self.tied):
            processes.add(torch.from_numpy(counts))
        if not self.best.size:
            return
        of_all = (-1, *self.best.shape)  # (processes, queries, top)
        best, scores = (
            np.concatenate(processes.gather(torch.from_numpy(each)).numpy().reshape(of_all), axis=1)
            for each in (self.best, self.best_scores)
        )
        self.best, self.best_scores = rank_counts.top_matches(best, scores, self.best.shape[1])

    def in_order(self, values: np.ndarray) -> Tensor:
        """Return values of the queries in the order of their indices."""
        ordered = np.empty_like(values)
        ordered[self.numbers] = values
        return torch.from_numpy(ordered if ordered.dtype != np.int32 else ordered.astype(np.int64))


def _add(block: Block, wrong_scores: np.ndarray, by_image: _Tally, by_caption: _Tally) -> None:
    invalid = np.count_nonzero(np.isnan(block.scores))
    if invalid:
        raise ValueError(f"{invalid} scores of images {block.images.start} and following are NaN")
    count_better, keep_best = rank_counts.count_better, rank_counts.keep_best
    if len(by_image.numbers) * len(by_caption.numbers) > FEW_SCORES:
        from fne.evaluation.metrics.rank_kernels import count_better, keep_best  # numba: slow to import
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


def _pad(vectors: Tensor, rows: int) -> Tensor:
    if len(vectors) == rows:
        return vectors
    padded = vectors.new_zeros((rows, vectors.shape[1]))
    padded[: len(vectors)] = vectors
    return padded


def _round_up(count: int) -> int:
    return -(-count // MULTIPLE) * MULTIPLE
