"""Images, their concepts and hints, and the order in which training sees them.

Concepts are the tags of the data set, or the most frequent words of its training captions. With tags,
every image of a split counts, and one without tags teaches to write none. With words, images
without captions do not count.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fne.core.errors import InputError
from fne.describing.concepts import Concepts, ConceptSource
from fne.describing.model import row_moments
from fne.describing.tag_order import ORDERS, tag_sequences
from fne.store.artifact import Lineage
from fne.store.catalog import Captioned, read_captions, split_artifact
from fne.store.lineage import recorded_lineage
from fne.store.rows import Rows
from fne.training.finished_runs import digest_of


@dataclass(frozen=True)
class TagBatch:
    """Some images, by their positions among the training images."""

    positions: np.ndarray
    examples: "Examples"

    def __len__(self) -> int:
        return len(self.positions)

    def __str__(self) -> str:
        return f"images {', '.join(self.examples.ids[position] for position in self.positions)}"

    def part(self, part: slice) -> "TagBatch":
        """Return the images of one process."""
        return TagBatch(self.positions[part], self.examples)

    def sequences(self) -> list[list[int]]:
        """Return the tags of each image as numbers of outputs, END included."""
        return [self.examples.sequences[position] for position in self.positions]

    def lengths(self) -> list[int]:
        """Return the number of tags of each image, END included."""
        return [len(each) for each in self.sequences()]


class Examples:
    """The images of one split, with their concepts, hints and tag sequences."""

    def __init__(
        self,
        ids: Sequence[str],
        rows: Rows,
        labels: np.ndarray,
        hints: np.ndarray | None,
        order: np.ndarray,
    ) -> None:
        """Hold the images of a split.

        Args:
            ids: the images.
            rows: the store of their embeddings.
            labels: which concepts each image has (images, concepts).
            hints: which hints each image has (images, hints), if they are read.
            order: all concepts in the order in which they are written (concepts).
        """
        rows.check_ids(ids)
        self.ids, self.labels, self.hints = list(ids), labels, hints
        # Output 0 is END, so that the concept n is the output n + 1.
        self.sequences = [[number + 1 for number in each] + [END] for each in tag_sequences(labels, order)]
        self._rows = rows

    def __len__(self) -> int:
        return len(self.ids)

    def images(self, positions: Sequence[int] | np.ndarray) -> Tensor:
        """Return image rows (images, features) in float32."""
        if len(self.ids) * self._rows.features > IN_MEMORY:
            rows = self._rows.read([self.ids[position] for position in positions])
        else:
            rows = self._in_memory[np.asarray(positions)]
        return torch.from_numpy(rows.astype(np.float32))

    @cached_property
    def _in_memory(self) -> np.ndarray:
        """All rows, in the type of the store: an epoch in random order would read every row again."""
        return self._rows.read(self.ids)

    def truth(self, positions: Sequence[int] | np.ndarray) -> Tensor:
        """Return 0/1 for the concepts of some images (images, concepts)."""
        return torch.from_numpy(self.labels[positions].astype(np.float32))

    def read_hints(self, positions: Sequence[int] | np.ndarray) -> Tensor | None:
        """Return 0/1 for the hints of some images (images, hints), if they are read."""
        return None if self.hints is None else torch.from_numpy(self.hints[positions].astype(np.float32))

    def batches(self, seed: int, epoch: int, batch: int) -> list[TagBatch]:
        """Return the batches of an epoch, in an order that seed and epoch alone decide."""
        order = np.random.default_rng((seed, epoch)).permutation(len(self))
        return [TagBatch(order[start : start + batch], self) for start in range(0, len(order), batch)]

    def steps(self, batch: int) -> int:
        """Return the number of batches of an epoch."""
        return -(-len(self) // batch)


@dataclass(frozen=True)
class TaggingInputs:
    """The training and validation data of a tagger, and its origin.

    Attributes:
        training: the training images.
        validation: the validation images.
        features: values of an image row.
        concepts: what is recognized and written.
        hints: the hints that are read, the most frequent first; empty if none are.
        mean: of each feature over the training images (features).
        deviation: of each feature over the training images (features).
        lineage: the artifacts that all of it was made from.
        read: the digests of what training reads, by which its result is kept.
        notes: remarks about the concepts, for the user.
    """

    training: Examples
    validation: Examples
    features: int
    concepts: Concepts
    hints: list[str]
    mean: Tensor
    deviation: Tensor
    lineage: Lineage
    read: dict[str, str]
    notes: list[str]


def read_inputs(
    embeddings: Path, captions: Path, source: ConceptSource, order: str, hint_count: int = 0
) -> TaggingInputs:
    """Open the image embeddings and choose the concepts.

    Args:
        embeddings: the store of image rows.
        captions: the catalog of captions and tags.
        source: where the concepts come from.
        order: a key of `fne.describing.concepts.ORDERS`.
        hint_count: how many hints are read at most; 0 for none.

    Raises:
        InputError: if they do not belong together, or if a split has too few images, concepts or hints.
    """
    rows = Rows.open(embeddings, "embeddings")
    captioned, catalog = read_captions(captions)
    lineage = recorded_lineage(rows.artifact, split_artifact(captions, captioned, "train"), catalog)
    training, validation = (source.images(captioned, split) for split in ("train", "val"))
    _require_images(training, "train", "training")
    _require_images(validation, "val", "choosing the best epoch")
    try:
        concepts = source.choose(training)
    except InputError as error:
        raise InputError(f"{captions}: {error.message}") from None
    if not any(concepts.numbers.keys() & source.names(record) for record in validation):
        raise InputError(
            f"{captions}: no image of split 'val' has any of the {len(concepts.names)} concepts, which "
            "choosing the best epoch needs; see `catalog` in params.yaml"
        )
    hints = frequent_hints(training, hint_count, captions) if hint_count else []
    numbers = ORDERS[order](concepts)
    train_examples, val_examples = (
        Examples(
            [record.id for record in records],
            rows,
            concepts.labels(source.names(record) for record in records),
            hint_labels(records, hints) if hints else None,
            numbers,
        )
        for records in (training, validation)
    )
    mean, deviation = row_moments(rows, [record.id for record in training])
    read = {"train": digest_of(rows, training), "val": digest_of(rows, validation)}
    notes = [_density(concepts, len(hints)), *concepts.warnings(), *_left_out(concepts)]
    return TaggingInputs(
        train_examples, val_examples, rows.features, concepts, hints, mean, deviation, lineage, read, notes
    )


def frequent_hints(training: Sequence[Captioned], count: int, captions: Path) -> list[str]:
    """Return the most frequent hints of the training images, ties broken alphabetically.

    Raises:
        InputError: if there are none.
    """
    found = Counter(hint for record in training for hint in record.hints)
    if not found:
        raise InputError(
            f"{captions}: train_tagger.hints is 'user', but no training image has hints; add a column "
            "`hints` to the table of the data set, or use -S train_tagger.hints=none"
        )
    return sorted(found, key=lambda hint: (-found[hint], hint))[:count]


def hint_labels(records: Sequence[Captioned], hints: Sequence[str]) -> np.ndarray:
    """Return which hints images have (images, hints)."""
    known = Concepts(list(hints), [0] * len(hints), 0, 1.0, [])
    return known.labels(record.hints for record in records)


def _require_images(records: Sequence[Captioned], split: str, purpose: str) -> None:
    if not records:
        raise InputError(
            f"the catalog has no images to tag in split '{split}'; {purpose} of a tagger needs them; "
            "see `catalog` in params.yaml"
        )


def _density(concepts: Concepts, hints: int) -> str:
    read = f", {hints} hints are read" if hints else ""
    return (
        f"{len(concepts.names)} concepts, {concepts.density:.1f} per training image, "
        f"{concepts.coverage:.1%} of all occurrences{read}"
    )


def _left_out(concepts: Concepts) -> list[str]:
    count = len(concepts.left_out)
    return [f"{count} tags of fewer training images than min_images are left out"] * bool(count)


END = 0  # the output that ends a sequence
IN_MEMORY = 2**28  # values of a split that are kept in memory at most
