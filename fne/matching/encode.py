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
from torch.nn.utils.rnn import pad_sequence

from fne.core.device import download, upload
from fne.core.distributed_layers import Step
from fne.core.processes import ALONE, Processes
from fne.core.progress import progress
from fne.matching.data import PairBatch, Pairs
from fne.matching.model import Matcher
from fne.store.artifact import Lineage
from fne.store.layout import Layer, plan_shards
from fne.store.rows import write_rows
from fne.training.row_source import RowSource

BLOCK = 256
SHARD_BYTES = 256 * 2**20


def encode_images(
    matcher: Matcher, pairs: Pairs, ids: Sequence[str], processes: Processes = ALONE
) -> Iterator[Tensor]:
    """Yield the vectors of images (some, embed_dim), on the CPU, all of them to all processes."""
    source, own = pairs.source, _own_blocks(ids, processes)
    rows = source.blocks([each for block in own for each in block], BLOCK)
    vectors = (matcher.embed_images(on_device(source, block, matcher.device)) for block in rows)
    return _shared(matcher, vectors, ids, processes)


def encode_captions(
    matcher: Matcher, pairs: Pairs, ids: Sequence[str], processes: Processes = ALONE
) -> Iterator[Tensor]:
    """Yield the vectors of captions (some, embed_dim), on the CPU, all of them to all processes."""
    words = (pairs.captions(block) for block in _own_blocks(ids, processes))
    vectors = (matcher.embed_captions(upload(each, matcher.device), lengths) for each, lengths in words)
    return _shared(matcher, vectors, ids, processes)


@torch.no_grad()
def encode_sentences(matcher: Matcher, sentences: Sequence[Sequence[int]]) -> np.ndarray:
    """Return the vectors (sentences, embed_dim) of sentences, given their word numbers, on the CPU."""
    matcher.eval()
    vectors = []
    for start in range(0, len(sentences), BLOCK):
        listed = [torch.tensor(list(numbers)) for numbers in sentences[start : start + BLOCK]]
        words, lengths = pad_sequence(listed, batch_first=True), torch.tensor([len(each) for each in listed])
        vectors.append(download(matcher.embed_captions(upload(words, matcher.device), lengths)))
    encoded: np.ndarray = torch.cat(vectors).numpy()
    return encoded


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
    """The vectors of one training batch, in float32 or better."""

    images: Tensor  # (pairs, embed_dim) from all processes, of length one
    captions: Tensor
    own_images: Tensor  # the outputs of the image head for this process's pairs, not of length one
    own_captions: Tensor  # those of the text encoder


def read_batch(matcher: Matcher, source: RowSource, own: PairBatch) -> Tensor:
    """Return the rows (images, features) of this process's part of a batch, on the device of the model."""
    if not len(own):  # a batch of fewer pairs than there are processes
        empty = torch.zeros((0, matcher.shape.features), dtype=next(matcher.parameters()).dtype)
        return upload(empty, matcher.device)
    return on_device(source, source.read(own.image_ids, own.views), matcher.device)


def embed_batch(
    matcher: Matcher,
    rows: Tensor,
    captions: tuple[Tensor, Tensor],
    step: Step,
    precision: torch.dtype = torch.float32,
    rectified: bool = False,
) -> BatchVectors:
    """Return the vectors of a batch's images and of its captions.

    Every process computes its own pairs and receives the others'. So all of them see every negative of the
    batch, and its size does not depend on their number. A process without pairs takes part too: it draws the
    same random numbers, and the statistics of batch normalization wait for it.

    Args:
        rows: of this process's images (pairs, features), on the device of the model.
        captions: padded words (pairs, longest) and lengths (pairs) of this process's captions.
        step: which pairs are this process's; its generator is in the same state in all processes.
        rectified: whether vectors of length one are those after ReLU.
    """
    words, lengths = captions
    device, gather = matcher.device, step.processes.gather
    with torch.autocast(device.type, precision, enabled=precision != torch.float32):
        own_images = matcher.image_head(rows, step)
        own_captions = matcher.text_encoder(upload(words, device), lengths, step)
        unit_images, unit_captions = (
            matcher.normalize(each.relu() if rectified else each) for each in (own_images, own_captions)
        )
    return BatchVectors(
        gather(_exact(unit_images)), gather(_exact(unit_captions)), _exact(own_images), _exact(own_captions)
    )


def write_vectors(
    matcher: Matcher,
    pairs: Pairs,
    image_ids: Sequence[str],
    caption_ids: Sequence[str],
    stores: tuple[Path, Path],
    lineage: Lineage,
    processes: Processes = ALONE,
) -> None:
    """Write the vectors of images and captions as two stores; the first process writes what all compute."""
    dim = matcher.shape.embed_dim
    for store, kind, ids, encode in (
        (stores[0], "image_vectors", image_ids, encode_images),
        (stores[1], "caption_vectors", caption_ids, encode_captions),
    ):
        encode_all = partial(encode, matcher, pairs, processes=processes)
        shards = vector_shards(ids, dim, encode_all, processes.first)
        if processes.first:
            write_rows(
                store,
                kind,
                [Layer("joint", dim)],
                "float32",
                shards,
                {"similarity": matcher.shape.similarity},
                lineage,
            )
        else:
            deque(shards, maxlen=0)


def on_device(source: RowSource, rows: Tensor, device: torch.device) -> Tensor:
    """Return rows where the model is; those of a network are there already."""
    return upload(rows, device) if source.network is None else rows


def _own_blocks(ids: Sequence[str], processes: Processes) -> list[Sequence[str]]:
    """Return the blocks that this process encodes: with n processes, every n-th one."""
    starts = range(BLOCK * processes.rank, len(ids), BLOCK * processes.count)
    return [ids[start : start + BLOCK] for start in starts]


@torch.no_grad()
def _shared(
    matcher: Matcher, own: Iterator[Tensor], ids: Sequence[str], processes: Processes
) -> Iterator[Tensor]:
    """Yield the vectors of all processes, one block of each at a time, given those of this process."""
    matcher.eval()
    nothing = torch.zeros((0, matcher.shape.embed_dim), dtype=next(matcher.parameters()).dtype)
    for _ in range(0, len(ids), BLOCK * processes.count):
        block = next(own, None)
        yield processes.gather(nothing if block is None else download(block))


def _exact(vectors: Tensor) -> Tensor:
    return vectors.to(torch.promote_types(vectors.dtype, torch.float32))
