"""Images and captions as tensors, and the order in which training sees them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fne.core.errors import InputError
from fne.store.catalog import Captioned
from fne.store.rows import Rows
from fne.store.tokens import Tokens


@dataclass(frozen=True)
class Batch:
    """Some images, each with a caption of its own."""

    image_ids: list[str]
    caption_ids: list[str]

    def part(self, own: slice) -> "Batch":
        """Return some of the pairs."""
        return Batch(self.image_ids[own], self.caption_ids[own])

    def positives(self) -> Tensor:
        """Return which pairs (images, captions) belong together: they must not serve as contrasts."""
        _, numbers = np.unique(self.image_ids, return_inverse=True)
        images = torch.from_numpy(numbers.reshape(-1))
        return images[:, None] == images[None, :]


class Pairs:
    """The captioned images of one split, with their embeddings and words at hand."""

    def __init__(self, captioned: Sequence[Captioned], embeddings: Rows, tokens: Tokens) -> None:
        embeddings.check_ids([record.id for record in captioned])
        tokens.check_ids([caption_id for record in captioned for caption_id in record.caption_ids])
        self.captioned = list(captioned)
        self._embeddings = embeddings
        self._tokens = tokens

    def __len__(self) -> int:
        return len(self.captioned)

    @property
    def caption_counts(self) -> np.ndarray:
        """How many captions each image has (images)."""
        return np.array([len(record.captions) for record in self.captioned])

    def images(self, ids: Sequence[str]) -> Tensor:
        """Return image embeddings (images, features) in float32."""
        return torch.from_numpy(self._embeddings.read(ids).astype(np.float32, copy=False))

    def captions(self, ids: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Return padded words (captions, longest) and lengths (captions)."""
        rows = [self._tokens.read(caption_id) for caption_id in ids]
        words = torch.zeros((len(rows), max(len(row) for row in rows)), dtype=torch.int64)
        for padded, row in zip(words, rows, strict=True):
            padded[: len(row)] = torch.from_numpy(row.astype(np.int64))
        return words, torch.tensor([len(row) for row in rows])

    def batches(self, seed: int, epoch: int, batch: int, captions: str) -> list[Batch]:
        """Return the batches of an epoch, in an order that is a matter of seed and epoch alone.

        A last batch of one joins the batch before it, since it would have nothing to
        contrast with.
        """
        generator = np.random.default_rng((seed, epoch))
        drawn = DRAWS[captions](self.captioned, generator)
        starts = batch_starts(len(drawn), batch)
        return [
            Batch([image for image, _ in drawn[start:end]], [caption for _, caption in drawn[start:end]])
            for start, end in zip(starts, [*starts[1:], len(drawn)], strict=True)
        ]

    def drawn(self, captions: str) -> int:
        """Return the number of pairs that an epoch draws."""
        return sum(1 if captions == "one" else len(record.captions) for record in self.captioned)


def one_caption(captioned: Sequence[Captioned], generator: np.random.Generator) -> list[tuple[str, str]]:
    """Every image once, with one of its captions, as the paper has it."""
    order = generator.permutation(len(captioned))
    return [
        (record.id, record.caption_ids[generator.integers(len(record.captions))])
        for record in (captioned[position] for position in order)
    ]


def all_captions(captioned: Sequence[Captioned], generator: np.random.Generator) -> list[tuple[str, str]]:
    """Every caption once, with its image; a batch may then hold an image twice."""
    every = [(record.id, caption_id) for record in captioned for caption_id in record.caption_ids]
    return [every[position] for position in generator.permutation(len(every))]


def batch_starts(pairs: int, batch: int) -> list[int]:
    """Return where the batches of an epoch start; a last one of a single pair joins the one before.

    Example:
        >>> batch_starts(9, batch=4)
        [0, 4]
    """
    starts = list(range(0, pairs, batch))
    return starts[:-1] if len(starts) > 1 and pairs - starts[-1] == 1 else starts


def require_images(pairs: Pairs, split: str, least: int, purpose: str) -> None:
    """Refuse a split with too few images, saying what they are needed for."""
    if len(pairs) < least:
        raise InputError(
            f"the catalog has {len(pairs)} captioned images in split '{split}'; {purpose} needs at least "
            f"{least}; see `catalog` in params.yaml"
        )


DRAWS = {"all": all_captions, "one": one_caption}
