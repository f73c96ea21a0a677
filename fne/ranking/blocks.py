"""Scores of all images and captions, in blocks of one shape.

A matrix product of an odd shape rounds some of its entries in another order than the
rest: in one of 7 x 13, equal vectors get up to three different scores, and a model that
maps everything to one point would be ranked by rounding. So all blocks have the same
shape, a multiple of what is computed at once, filled up with zeros where needed.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from torch import Tensor

Similarity = Callable[[Tensor, Tensor], Tensor]
MULTIPLE = 16


@dataclass(frozen=True)
class Block:
    """The scores of some images that follow each other and some captions that do."""

    images: slice
    captions: slice
    scores: np.ndarray  # (images, captions)


class Blocks:
    """All scores, every one computed once: those of images with their own captions first.

    Args:
        images: vectors (images, dim).
        captions: vectors (captions, dim) on the same device, in the order of their images.
        counts: how many captions each image has (images).
        similarity: see `fne.ranking.similarities`.
        size: how many images a block has.
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
        """Into how many parts images and captions are divided."""
        return len(self._parts)

    def own(self) -> Iterator[Block]:
        """Yield the blocks of images with their own captions, part by part: all true pairs are in these."""
        for images, captions in self._parts:
            yield self._block(images, captions, self._filled(captions))

    def others(self, parts: Iterable[int]) -> Iterator[Block]:
        """Yield all other blocks of the captions of some parts."""
        for own, captions in (self._parts[part] for part in parts):
            vectors = self._filled(captions)
            for images, _ in self._parts:
                if images != own:
                    yield self._block(images, captions, vectors)

    def _filled(self, captions: slice) -> Tensor:
        return _fill_up(self._captions[captions], self._shape[1])

    def _block(self, images: slice, captions: slice, caption_vectors: Tensor) -> Block:
        scores = self._similarity(_fill_up(self._images[images], self._shape[0]), caption_vectors)
        wanted = scores[: images.stop - images.start, : captions.stop - captions.start]
        return Block(images, captions, wanted.contiguous().cpu().numpy())


def _fill_up(vectors: Tensor, rows: int) -> Tensor:
    if len(vectors) == rows:
        return vectors
    filled = vectors.new_zeros((rows, vectors.shape[1]))
    filled[: len(vectors)] = vectors
    return filled


def _round_up(count: int) -> int:
    return -(-count // MULTIPLE) * MULTIPLE
