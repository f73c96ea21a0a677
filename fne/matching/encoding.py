"""Vectors of images and captions in the joint space, block by block.

Processes compute whole blocks, so the bits do not depend on how many there are.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from fne.core.processes import ALONE, Processes
from fne.matching.model import Matcher
from fne.matching.pairs import Pairs
from fne.store.layout import plan_shards

BLOCK = 256
SHARD_BYTES = 256 * 2**20


def encode_images(
    matcher: Matcher, pairs: Pairs, ids: Sequence[str], processes: Processes = ALONE
) -> Iterator[Tensor]:
    """Yield the vectors of images (some, embed_dim), on the CPU, all of them to all processes."""

    def encode(block: Sequence[str]) -> Tensor:
        return matcher.embed_images(pairs.images(block).to(matcher.device))

    return _encode(matcher, encode, ids, processes)


def encode_captions(
    matcher: Matcher, pairs: Pairs, ids: Sequence[str], processes: Processes = ALONE
) -> Iterator[Tensor]:
    """Yield the vectors of captions (some, embed_dim), on the CPU, all of them to all processes."""

    def encode(block: Sequence[str]) -> Tensor:
        words, lengths = pairs.captions(block)
        return matcher.embed_captions(words.to(matcher.device), lengths)

    return _encode(matcher, encode, ids, processes)


def vector_shards(
    ids: Sequence[str], dim: int, encode: Callable[[Sequence[str]], Iterable[Tensor]]
) -> Iterator[tuple[int, list[str], np.ndarray]]:
    """Yield the number, ids and vectors of each shard, of at most about `SHARD_BYTES`."""
    shards = 1 + len(ids) * dim * 4 // SHARD_BYTES
    for number, chosen in plan_shards(ids, shards).items():
        yield number, chosen, torch.cat(list(encode(chosen))).numpy()


@torch.no_grad()
def _encode(
    matcher: Matcher, encode: Callable[[Sequence[str]], Tensor], ids: Sequence[str], processes: Processes
) -> Iterator[Tensor]:
    matcher.eval()
    nothing = next(matcher.parameters()).new_empty((0, matcher.shape.embed_dim)).cpu()
    for start in range(BLOCK * processes.rank, len(ids) + BLOCK * processes.rank, BLOCK * processes.count):
        block = ids[start : start + BLOCK]
        own = encode(block).cpu() if block else nothing
        yield processes.gather(own)
