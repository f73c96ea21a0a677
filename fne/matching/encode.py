"""Vectors of images and captions in the joint space: a batch with gradients, or a split block by block.

A batch is shared by the processes pair by pair; every process receives all vectors. A split
is shared by whole blocks, so its bits do not depend on the number of processes.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fne.core.device import download, upload
from fne.core.distributed_layers import Step
from fne.core.processes import ALONE, Processes
from fne.core.progress import progress
from fne.matching.data import PairBatch, Pairs
from fne.matching.model import Matcher
from fne.store.artifact import Lineage
from fne.store.layout import Layer, plan_shards
from fne.store.rows import write_rows

BLOCK = 256
SHARD_BYTES = 256 * 2**20


def encode_images(
    matcher: Matcher,
    pairs: Pairs,
    ids: Sequence[str],
    processes: Processes = ALONE,
    rows: Callable[[Sequence[str]], Tensor] | None = None,
) -> Iterator[Tensor]:
    """Yield the vectors of images (some, embed_dim), on the CPU, all of them to all processes.

    With `rows`, which maps ids to rows (images, features), these take the place of the embeddings.
    """
    read = rows or pairs.images

    def encode(block: Sequence[str]) -> Tensor:
        return matcher.embed_images(upload(read(block), matcher.device))

    return _encode(matcher, encode, ids, processes)


def encode_captions(
    matcher: Matcher, pairs: Pairs, ids: Sequence[str], processes: Processes = ALONE
) -> Iterator[Tensor]:
    """Yield the vectors of captions (some, embed_dim), on the CPU, all of them to all processes."""

    def encode(block: Sequence[str]) -> Tensor:
        words, lengths = pairs.captions(block)
        return matcher.embed_captions(upload(words, matcher.device), lengths)

    return _encode(matcher, encode, ids, processes)


def vector_shards(
    ids: Sequence[str], dim: int, encode: Callable[[Sequence[str]], Iterable[Tensor]], shown: bool = True
) -> Iterator[tuple[int, list[str], np.ndarray]]:
    """Yield the number, ids and vectors of each shard, of at most about `SHARD_BYTES`."""
    shards = 1 + len(ids) * dim * 4 // SHARD_BYTES
    with progress("encode", len(ids), unit="vector", shown=shown) as encoding:
        for number, chosen in plan_shards(ids, shards).items():
            parts = []
            for part in encode(chosen):
                parts.append(part)
                encoding.update(len(part))
            yield number, chosen, torch.cat(parts).numpy()


@dataclass(frozen=True)
class BatchVectors:
    """The vectors of one training batch, in float32 or better.

    Attributes:
        images: of the images of all processes (pairs, embed_dim), of length one.
        captions: of the captions of all processes, alike.
        own_images: the outputs of the image head for the pairs of this process, not of length one.
        own_captions: the outputs of the text encoder, alike.
        step: which pairs are this process's.
    """

    images: Tensor
    captions: Tensor
    own_images: Tensor
    own_captions: Tensor
    step: Step


def embed_batch(
    matcher: Matcher,
    pairs: Pairs,
    batch: PairBatch,
    precision: torch.dtype,
    processes: Processes,
    generator: torch.Generator,
    rectified: bool = False,
) -> BatchVectors:
    """Return the vectors of a batch's images and of its captions.

    Every process computes its own pairs and receives the others'. So all of them see every
    contrast of the batch, and the size of the batch does not depend on their number. A process
    without pairs takes part too: it draws the same random numbers, and the statistics of batch
    normalization wait for it.

    Args:
        matcher: the model.
        pairs: the images and captions.
        batch: the pairs of all processes.
        precision: what to compute with.
        processes: the processes that share the batch.
        generator: of the random numbers of this step, in the same state in all processes.
        rectified: whether vectors of length one are those after ReLU.
    """
    part, device = processes.partition(len(batch.image_ids)), matcher.device
    own, step = batch.part(part), Step(generator, len(batch), part, processes)
    if own.image_ids:
        rows = pairs.images(own.image_ids, own.views)
        words, lengths = pairs.captions(own.caption_ids)
    else:  # a batch of fewer pairs than there are processes
        rows = torch.zeros((0, matcher.shape.features), dtype=next(matcher.parameters()).dtype)
        words, lengths = torch.zeros((0, 1), dtype=torch.int64), torch.zeros(0, dtype=torch.int64)
    with torch.autocast(device.type, precision, enabled=precision != torch.float32):
        own_images = matcher.image_head(upload(rows, device), step)
        own_captions = matcher.text_encoder(upload(words, device), lengths, step)
        images, captions = (
            matcher.normalize(each.relu() if rectified else each) for each in (own_images, own_captions)
        )
    return BatchVectors(
        processes.gather(_exact(images)),
        processes.gather(_exact(captions)),
        _exact(own_images),
        _exact(own_captions),
        step,
    )


def write_vectors(
    matcher: Matcher,
    pairs: Pairs,
    image_ids: Sequence[str],
    caption_ids: Sequence[str],
    stores: tuple[Path, Path],
    lineage: Lineage,
    processes: Processes = ALONE,
    rows: Callable[[Sequence[str]], Tensor] | None = None,
) -> None:
    """Write the vectors of images and captions as two stores; the first process writes what all compute.

    With `rows`, which maps ids to rows (images, features), these take the place of the embeddings.
    """
    dim = matcher.shape.embed_dim
    for store, kind, ids, encode in (
        (stores[0], "image_vectors", image_ids, partial(encode_images, rows=rows)),
        (stores[1], "caption_vectors", caption_ids, encode_captions),
    ):
        encode_all = partial(encode, matcher, pairs, processes=processes)
        shards = vector_shards(ids, dim, encode_all, processes.first)
        if processes.first:
            write_rows(store, kind, [Layer("joint", dim)], "float32", shards, {}, lineage)
        else:
            deque(shards, maxlen=0)


@torch.no_grad()
def _encode(
    matcher: Matcher, encode: Callable[[Sequence[str]], Tensor], ids: Sequence[str], processes: Processes
) -> Iterator[Tensor]:
    matcher.eval()
    nothing = torch.zeros((0, matcher.shape.embed_dim), dtype=next(matcher.parameters()).dtype)
    for start in range(BLOCK * processes.rank, len(ids) + BLOCK * processes.rank, BLOCK * processes.count):
        block = ids[start : start + BLOCK]
        own = download(encode(block)) if block else nothing
        yield processes.gather(own)


def _exact(vectors: Tensor) -> Tensor:
    return vectors.to(torch.promote_types(vectors.dtype, torch.float32))
