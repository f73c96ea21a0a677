"""Similarities of images and captions, from their vectors in the joint space.

Every similarity is called as `similarity(images, captions)` with vectors (images, dim)
and (captions, dim), and returns scores (images, captions); higher is better.

The order similarity (Vendrov et al.) is minus the squared excess of a caption over its image: a caption is
more general than its image, so it should not lie above it in any dimension. No complete tensor of (images,
captions, dim) is allocated, not even for the gradient. On the CPU, `fne.matching.order_kernels` has compiled
loops. For other devices and types, it is computed in plain torch, in chunks of images.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from fne.core.products import linear

EUCLIDEAN_EPSILON = 1e-4
# Values of an intermediate tensor (images, captions, dim): 64 MB in float32.
CHUNK_VALUES = 2**24
# Differences that one thread computes in about 5 ms; starting a thread for fewer does not pay off.
MIN_DIFFERENCES_PER_THREAD = 2**26


def cosine(images: Tensor, captions: Tensor) -> Tensor:
    """Return inner products, which are cosines because all vectors have length one."""
    return linear(images, captions)


def euclidean(images: Tensor, captions: Tensor) -> Tensor:
    """Return minus the Euclidean distance, as in the published code of two-branch networks.

    A small number below the root keeps the gradient finite where two vectors are equal.
    """
    of_images, of_captions = (each.square().sum(dim=1) for each in (images, captions))
    squared = of_images[:, None] - 2 * linear(images, captions) + of_captions[None, :]
    return -(squared + EUCLIDEAN_EPSILON).sqrt()


def exact_euclidean(images: Tensor, captions: Tensor) -> Tensor:
    """Return minus the Euclidean distance, from differences, for vectors that are not of length one.

    From products, as `euclidean` computes it, long vectors would lose the digits of small distances.
    """
    return -torch.cdist(images, captions, compute_mode="donot_use_mm_for_euclid_dist")


def exact_cosine(images: Tensor, captions: Tensor) -> Tensor:
    """Return cosines of vectors of any length; that of a vector of zeros is 0."""
    return cosine(functional.normalize(images, dim=1), functional.normalize(captions, dim=1))


def order(images: Tensor, captions: Tensor) -> Tensor:
    """Return minus the squared length of a caption's excess over its image, as in Vendrov et al.'s code."""
    scores: Tensor = Order.apply(images, captions)
    return scores


def order_root(images: Tensor, captions: Tensor) -> Tensor:
    """Return minus the length of a caption's excess over its image, as in the equation and in VSE++.

    Where a caption exceeds its image in no dimension, the root has no gradient; it is set to 0.
    """
    squared = -order(images, captions)
    # The gradient of a root at 0 is infinite, and infinity times 0 is NaN: take it at 1 and mask it.
    inside = squared == 0
    return -squared.masked_fill(inside, 1).sqrt().masked_fill(inside, 0)


class Order(torch.autograd.Function):
    """The order similarity (images, captions) as a differentiable function."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, captions: Tensor) -> Tensor:
        """Return the scores, and keep only the vectors for the gradient."""
        ctx.save_for_backward(images, captions)
        return order_scores(images, captions)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients with respect to images and captions."""
        images, captions = ctx.saved_tensors
        return order_gradients(images, captions, weights)


def order_scores(images: Tensor, captions: Tensor) -> Tensor:
    """Return the scores (images, captions) of images (images, dim) and captions (captions, dim), detached."""
    _check(images, captions)
    images, captions = images.detach(), captions.detach()
    if not _is_compiled_for(images):
        return order_in_chunks(images, captions)
    from fne.matching.order_kernels import score  # numba: slow to import

    scores = images.new_empty(len(images), len(captions))
    arrays = _array(images), _array(captions), _array(scores)
    _run_in_threads(lambda first, last: score(*arrays, first, last), len(captions), images.numel())
    return scores


def order_gradients(images: Tensor, captions: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of images and captions, given that of the scores, `weights` (images, captions)."""
    if not _is_compiled_for(images):
        return order_gradients_in_chunks(images, captions, weights)
    vectors = _array(images), _array(captions)
    weights = 2 * weights
    # The excess of a caption over an image is the excess of the negative image over the negative caption.
    return _sum_excess(*vectors, _array(weights)), _sum_excess(-vectors[1], -vectors[0], _array(-weights.T))


def order_in_chunks(images: Tensor, captions: Tensor) -> Tensor:
    """Return what `order_scores` returns, in plain torch, for any device."""
    scores = images.new_empty(len(images), len(captions))
    for part, excess in _excess(images, captions):
        scores[part] = -excess.square_().sum(dim=2)
    return scores


def order_gradients_in_chunks(images: Tensor, captions: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return what `order_gradients` returns, in plain torch, for any device."""
    of_images, of_captions = torch.empty_like(images), torch.zeros_like(captions)
    for part, excess in _excess(images, captions):
        excess *= 2 * weights[part, :, None]
        of_images[part] = excess.sum(dim=1)
        of_captions -= excess.sum(dim=0)
    return of_images, of_captions


def _excess(images: Tensor, captions: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Yield chunks of images with the excess of all captions over them (chunk, captions, dim)."""
    size = max(1, CHUNK_VALUES // max(1, captions.numel()))
    for start in range(0, len(images), size):
        part = slice(start, start + size)
        yield part, (captions[None] - images[part, None]).clamp_(min=0)


def _sum_excess(vectors: np.ndarray, others: np.ndarray, weights: np.ndarray) -> Tensor:
    from fne.matching.order_kernels import sum_excess  # numba: slow to import

    sums = np.empty_like(vectors)
    _run_in_threads(
        lambda first, last: sum_excess(vectors, others, weights, sums, first, last), len(vectors), others.size
    )
    return torch.from_numpy(sums)


def _check(images: Tensor, captions: Tensor) -> None:
    forms = [(each.shape[1:], each.dtype, each.device) for each in (images, captions)]
    if images.ndim != 2 or forms[0] != forms[1]:
        raise ValueError(
            f"images and captions must be vectors of one dimension, type and device, but are "
            f"{tuple(images.shape)} {images.dtype} on {images.device} and "
            f"{tuple(captions.shape)} {captions.dtype} on {captions.device}"
        )


def _is_compiled_for(vectors: Tensor) -> bool:
    return vectors.device.type == "cpu" and vectors.dtype in (torch.float32, torch.float64)


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.contiguous().numpy()


def _run_in_threads(work: Callable[[int, int], None], count: int, differences: int) -> None:
    """Call `work(first, last)` for ranges of `count` items, in threads; `differences` are those per item.

    They are plain Python threads, at most as many as torch uses, since the compiled loops release the GIL.
    Numba's own threads would end the process when it forks, or when two threads use them at once.
    """
    threads = max(1, min(torch.get_num_threads(), count, count * differences // MIN_DIFFERENCES_PER_THREAD))
    bounds = [count * part // threads for part in range(threads + 1)]
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, bounds[:-1], bounds[1:]))


SIMILARITIES = {"cosine": cosine, "euclidean": euclidean, "order": order, "order_root": order_root}
# For vectors of any length, such as imported ones.
OF_ANY_LENGTH = SIMILARITIES | {"cosine": exact_cosine, "euclidean": exact_euclidean}
