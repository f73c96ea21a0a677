"""Vectors of images and captions in the joint space, block by block."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from fne.matching.model import Matcher
from fne.matching.pairs import Pairs
from fne.store.layout import plan_shards

BLOCK = 256
SHARD_BYTES = 256 * 2**20


@torch.no_grad()
def encode_images(matcher: Matcher, pairs: Pairs, ids: Sequence[str]) -> Iterator[Tensor]:
    """Yield the vectors of images (block, embed_dim), on the CPU."""
    matcher.eval()
    for start in range(0, len(ids), BLOCK):
        yield matcher.embed_images(pairs.images(ids[start : start + BLOCK]).to(matcher.device)).cpu()


@torch.no_grad()
def encode_captions(matcher: Matcher, pairs: Pairs, ids: Sequence[str]) -> Iterator[Tensor]:
    """Yield the vectors of captions (block, embed_dim), on the CPU."""
    matcher.eval()
    for start in range(0, len(ids), BLOCK):
        words, lengths = pairs.captions(ids[start : start + BLOCK])
        yield matcher.embed_captions(words.to(matcher.device), lengths).cpu()


def vector_shards(
    ids: Sequence[str], dim: int, encode: Callable[[Sequence[str]], Iterable[Tensor]]
) -> Iterator[tuple[int, list[str], np.ndarray]]:
    """Yield the number, ids and vectors of each shard, of at most about `SHARD_BYTES`."""
    shards = 1 + len(ids) * dim * 4 // SHARD_BYTES
    for number, chosen in plan_shards(ids, shards).items():
        yield number, chosen, torch.cat(list(encode(chosen))).numpy()
