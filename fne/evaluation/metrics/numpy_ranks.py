"""Exact ranks in both directions in NumPy, for a stage that does not import torch.

They mean what those of `fne.evaluation.metrics.ranks` mean: a wrong item with the same score as the true one
counts as better. That module also returns the top matches, and divides the work among processes.
"""

from collections.abc import Callable

import numpy as np

Similarity = Callable[[np.ndarray, np.ndarray], np.ndarray]
BLOCK = 512  # images per block of scores
MULTIPLE = 16  # block sizes are rounded up to a multiple of this


def rank_in_numpy(
    images: np.ndarray, captions: np.ndarray, counts: np.ndarray, similarity: Similarity
) -> tuple[np.ndarray, np.ndarray]:
    """Return the ranks of images (images) and captions (captions); rank 1 is best.

    Args:
        images: vectors (images, dim).
        captions: vectors (captions, dim), in the order of their images.
        counts: the number of captions of each image (images), at least one.
        similarity: see `fne.matching.numpy_similarities`.
    """
    owners = np.repeat(np.arange(len(images)), counts)
    image_true, caption_true = np.empty(len(images), np.float32), np.empty(len(captions), np.float32)
    starts = range(0, len(images), BLOCK)
    # All blocks have one shape: a product of another shape may round equal scores to different values.
    columns = _pad(captions, _round_up(len(captions)))

    def score(start: int) -> tuple[slice, np.ndarray, np.ndarray]:
        block = slice(start, min(start + BLOCK, len(images)))
        rows = _pad(images[block], _round_up(min(BLOCK, len(images))))
        scores = similarity(rows, columns)[: block.stop - start, : len(captions)]
        return block, scores, np.arange(start, block.stop)[:, None] == owners

    for start in starts:
        block, scores, true = score(start)
        only_true = np.where(true, scores, -np.inf)
        image_true[block] = only_true.max(axis=1)
        own = true.any(axis=0)
        caption_true[own] = only_true[:, own].max(axis=0)
    image_ranks, caption_ranks = np.ones(len(images), np.int64), np.ones(len(captions), np.int64)
    for start in starts:
        block, scores, true = score(start)
        image_ranks[block] += ((scores >= image_true[block, None]) & ~true).sum(axis=1)
        caption_ranks += ((scores >= caption_true) & ~true).sum(axis=0)
    return image_ranks, caption_ranks


def _pad(vectors: np.ndarray, rows: int) -> np.ndarray:
    return np.pad(vectors, ((0, rows - len(vectors)), (0, 0)))


def _round_up(count: int) -> int:
    return -(-count // MULTIPLE) * MULTIPLE
