"""Images with the sequences that a tagger or captioner learns to write about them, and the order of training.

A sequence is a list of numbers of outputs, END included. An image of a tagger has one sequence, its tags; an
image of a captioner has one per caption.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from fne.store.catalog import Captioned
from fne.text.caption_vocabulary import ptb_words
from fne.training.row_source import RowSource

SHOWN = 5  # images that a batch names in a message


@dataclass(frozen=True)
class SequenceBatch:
    """Some sequences, each with its image."""

    images: np.ndarray  # positions of images, one per sequence (sequences)
    numbers: np.ndarray  # the number of each sequence among those of its image (sequences)
    examples: "Examples"
    epoch: int = 0  # which decides the crops of images, where a network computes their rows

    def __len__(self) -> int:
        return len(self.images)

    def __str__(self) -> str:
        named = list(dict.fromkeys(self.examples.ids[position] for position in self.images))
        more = [f"and {len(named) - SHOWN} more"] if len(named) > SHOWN else []
        return f"images {', '.join([*named[:SHOWN], *more])}"

    def part(self, part: slice) -> "SequenceBatch":
        """Return the sequences of one process."""
        return SequenceBatch(self.images[part], self.numbers[part], self.examples, self.epoch)

    def sequences(self) -> list[list[int]]:
        """Return the numbers of outputs of each sequence."""
        chosen = zip(self.images, self.numbers, strict=True)
        return [self.examples.sequences[image][number] for image, number in chosen]

    def different_images(self) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the images without repetition, and the place among them of each sequence's image.

        The places are None where every image has one sequence: the images then are those of the batch.
        """
        if not self.examples.several:
            return self.images, None
        different, places = np.unique(self.images, return_inverse=True)
        return different, places.reshape(-1)


class Examples:
    """The images of one split, with their rows, concepts, user tags and sequences."""

    def __init__(
        self,
        records: Sequence[Captioned],
        source: RowSource,
        labels: np.ndarray,
        sequences: list[list[list[int]]],
        *,
        user_tags: np.ndarray | None = None,
        several: bool = False,
    ) -> None:
        """Hold the images of a split.

        Args:
            labels: which concepts each image has (images, concepts).
            user_tags: which user tags each image has (images, user tags), if they are read.
            several: whether an image may have several sequences.
        """
        self.ids = [record.id for record in records]
        source.check_ids(self.ids)
        self.labels, self.sequences, self.user_tags, self.several = labels, sequences, user_tags, several
        self._records, self.source = records, source

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def counts(self) -> np.ndarray:
        """How many sequences each image has (images)."""
        return np.array([len(each) for each in self.sequences], dtype=np.int64)

    @cached_property
    def references(self) -> dict[str, list[str]]:
        """The captions of each image as published scores cut them."""
        return reference_sentences(self._records)

    def images(self, positions: Sequence[int] | np.ndarray, epoch: int | None = None) -> Tensor:
        """Return image rows (images, features) in float32; a network computes those of a training epoch."""
        ids = [self.ids[position] for position in positions]
        crops = None if epoch is None or self.source.network is None else [epoch] * len(ids)
        return self.source.read(ids, crops)

    def truth(self, positions: Sequence[int] | np.ndarray) -> Tensor:
        """Return 0/1 for the concepts of some images (images, concepts)."""
        return torch.from_numpy(self.labels[positions].astype(np.float32))

    def read_user_tags(self, positions: Sequence[int] | np.ndarray) -> Tensor | None:
        """Return 0/1 for the user tags of some images (images, user tags), if they are read."""
        return (
            None if self.user_tags is None else torch.from_numpy(self.user_tags[positions].astype(np.float32))
        )

    def batches(self, seed: int, epoch: int, batch: int, draw: str = "all") -> list[SequenceBatch]:
        """Return the batches of an epoch, in an order that seed and epoch alone decide."""
        generator = np.random.default_rng((seed, epoch))
        images, numbers = DRAWS[draw](self.counts, generator)
        order = generator.permutation(len(images))
        return [
            SequenceBatch(images[chosen], numbers[chosen], self, epoch)
            for chosen in (order[start : start + batch] for start in range(0, len(order), batch))
        ]

    def steps(self, batch: int, draw: str = "all") -> int:
        """Return the number of batches of an epoch."""
        drawn = len(self) if draw == "one" else int(self.counts.sum())
        return -(-drawn // batch)

    def every_sequence(self, positions: Sequence[int]) -> SequenceBatch:
        """Return all sequences of some images."""
        counts = self.counts[list(positions)]
        images = np.repeat(np.asarray(positions, dtype=np.int64), counts)
        return SequenceBatch(images, np.concatenate([np.arange(count) for count in counts]), self)


def spread_evenly(images: int, at_most: int) -> list[int]:
    """Return the positions of `at_most` of `images` images, spread evenly over them; 0 means all.

    The order of a split may follow the file names.
    """
    count = min(at_most or images, images)
    positions: list[int] = np.linspace(0, images - 1, count).round().astype(int).tolist()
    return positions


def reference_sentences(records: Sequence[Captioned]) -> dict[str, list[str]]:
    """Return the captions of images as published scores cut them; images without captions are left out."""
    return {
        record.id: [" ".join(ptb_words(caption)) for caption in record.captions]
        for record in records
        if record.captions
    }


def one_sequence(counts: np.ndarray, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Every image once, with one of its sequences."""
    return np.arange(len(counts)), generator.integers(counts)


def all_sequences(counts: np.ndarray, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Every sequence once, with its image."""
    return np.repeat(np.arange(len(counts)), counts), np.concatenate([np.arange(each) for each in counts])


DRAWS = {"all": all_sequences, "one": one_sequence}
