"""Minus the squared amount by which a caption exceeds its image in any dimension.

A caption is more general than its image, so in the order of the joint space it should
lie below it everywhere (Vendrov et al.). No tensor of (images, captions, dim) is formed,
neither for the scores nor for their gradient.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fne.ranking import order_chunks

# Differences that a thread computes in about 5 ms; for less it would not pay to start one.
LEAST_SHARE = 2**26


class Order(torch.autograd.Function):
    """The scores (images, captions), with their gradient."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, captions: Tensor) -> Tensor:
        """Score, and remember only the vectors."""
        ctx.save_for_backward(images, captions)
        return order_scores(images, captions)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients by images and captions."""
        images, captions = ctx.saved_tensors
        return order_gradients(images, captions, weights)


def order_scores(images: Tensor, captions: Tensor) -> Tensor:
    """Return the scores (images, captions) of vectors (images, dim) and (captions, dim), without a gradient.

    Raises:
        ValueError: if the vectors differ in dimension, type or device.
    """
    _check(images, captions)
    images, captions = images.detach(), captions.detach()
    if not _is_compiled_for(images):
        return order_chunks.score(images, captions)
    from fne.ranking.order_loops import score

    scores = images.new_empty(len(images), len(captions))
    arrays = _array(images), _array(captions), _array(scores)
    _share_out(lambda first, last: score(*arrays, first, last), len(captions), images.numel())
    return scores


def order_gradients(images: Tensor, captions: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients, by images and by captions, of the sum of the scores weighted with `weights`."""
    if not _is_compiled_for(images):
        return order_chunks.gradients(images, captions, weights)
    vectors = _array(images), _array(captions)
    weights = 2 * weights
    # What a caption exceeds an image by, the negative image exceeds the negative caption by.
    return _pull(*vectors, _array(weights)), _pull(-vectors[1], -vectors[0], _array(-weights.T))


def _pull(vectors: np.ndarray, others: np.ndarray, weights: np.ndarray) -> Tensor:
    from fne.ranking.order_loops import pull

    pulls = np.empty_like(vectors)
    _share_out(
        lambda first, last: pull(vectors, others, weights, pulls, first, last), len(vectors), others.size
    )
    return torch.from_numpy(pulls)


def _check(images: Tensor, captions: Tensor) -> None:
    kinds = [(each.shape[1:], each.dtype, each.device) for each in (images, captions)]
    if images.ndim != 2 or kinds[0] != kinds[1]:
        raise ValueError(
            f"images and captions must be vectors of one dimension, type and device, but are "
            f"{tuple(images.shape)} {images.dtype} on {images.device} and "
            f"{tuple(captions.shape)} {captions.dtype} on {captions.device}"
        )


def _is_compiled_for(vectors: Tensor) -> bool:
    return vectors.device.type == "cpu" and vectors.dtype in (torch.float32, torch.float64)


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.contiguous().numpy()


def _share_out(work: Callable[[int, int], None], count: int, differences: int) -> None:
    """Call `work(first, last)` for shares of `count` items, of so many differences each.

    There are at most as many threads as torch takes. They are plain ones, since the loops release the
    interpreter's lock: numba's own end the process when it forks, or when two of ours use them at once.
    """
    threads = max(1, min(torch.get_num_threads(), count, count * differences // LEAST_SHARE))
    bounds = [count * share // threads for share in range(threads + 1)]
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, bounds[:-1], bounds[1:]))
