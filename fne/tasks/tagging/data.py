"""Images, their concepts and hints, and the order in which training sees them.

Concepts are the tags of the data set, or the most frequent words of its training captions. With tags,
every image of a split counts, and one without tags teaches to write none. With words, images
without captions do not count.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fne.core.errors import InputError
from fne.core.params import Section
from fne.core.variants import Variant
from fne.store.artifact import Lineage
from fne.store.catalog import Captioned, captioned_in, in_split, read_captions, split_artifact
from fne.store.provenance import recorded_lineage
from fne.store.rows import Rows
from fne.text.caption_vocabulary import ptb_words
from fne.text.concepts import ORDERS, Concepts, concepts_from_tags, concepts_from_words, tag_sequences


class FromTags(Section):
    """The settings of concepts that are the data set's tags."""

    min_images: Annotated[int, Field(ge=1, examples=[1])]


class FromWords(Section):
    """The settings of concepts that are words of captions."""

    count: Annotated[int, Field(ge=1, examples=[1000])]


@dataclass(frozen=True)
class ConceptSource:
    """Where concepts come from.

    Attributes:
        images: chooses the images of a split that can have concepts.
        choose: chooses the concepts from the training images.
        names: returns the names that an image has, whether they are concepts or not.
    """

    images: Callable[[Iterable[Captioned], str], list[Captioned]]
    choose: Callable[[Sequence[Captioned]], Concepts]
    names: Callable[[Captioned], set[str]]


@dataclass(frozen=True)
class Batch:
    """Some images, by their positions among the training images."""

    positions: np.ndarray
    ids: Sequence[str]  # of all training images

    def __len__(self) -> int:
        return len(self.positions)

    def __str__(self) -> str:
        return f"images {', '.join(self.ids[position] for position in self.positions)}"


class Examples:
    """The images of one split, with their concepts, hints and tag sequences at hand."""

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
        """All rows, in the type of the store: an epoch in random order would read every row anew."""
        return self._rows.read(self.ids)

    def truth(self, positions: Sequence[int] | np.ndarray) -> Tensor:
        """Return 0/1 for the concepts of some images (images, concepts)."""
        return torch.from_numpy(self.labels[positions].astype(np.float32))

    def read_hints(self, positions: Sequence[int] | np.ndarray) -> Tensor | None:
        """Return 0/1 for the hints of some images (images, hints), if they are read."""
        return None if self.hints is None else torch.from_numpy(self.hints[positions].astype(np.float32))

    def tags(self, positions: Sequence[int] | np.ndarray) -> tuple[Tensor, Tensor]:
        """Return padded sequences of outputs (images, longest) and their lengths (images)."""
        found = [self.sequences[position] for position in positions]
        lengths = [len(each) for each in found]
        padded = torch.zeros((len(found), max(lengths)), dtype=torch.int64)
        for row, sequence in zip(padded, found, strict=True):
            row[: len(sequence)] = torch.tensor(sequence)
        return padded, torch.tensor(lengths)

    def batches(self, seed: int, epoch: int, batch: int) -> list[Batch]:
        """Return the batches of an epoch, in an order that seed and epoch alone decide."""
        order = np.random.default_rng((seed, epoch)).permutation(len(self))
        return [Batch(order[start : start + batch], self.ids) for start in range(0, len(order), batch)]

    def steps(self, batch: int) -> int:
        """Return the number of batches of an epoch."""
        return -(-len(self) // batch)


@dataclass(frozen=True)
class Inputs:
    """What a tagger learns from and is judged by, and where it is from.

    Attributes:
        training: the training images.
        validation: the validation images.
        features: values of an image row.
        concepts: what is recognized and written.
        hints: the hints that are read, the most frequent first; empty if none are.
        mean: of each feature over the training images (features).
        deviation: the same.
        lineage: where all of it is from.
        notes: what a user should know about the concepts.
    """

    training: Examples
    validation: Examples
    features: int
    concepts: Concepts
    hints: list[str]
    mean: Tensor
    deviation: Tensor
    lineage: Lineage
    notes: list[str]


def read_inputs(
    embeddings: Path, captions: Path, source: ConceptSource, order: str, hint_count: int = 0
) -> Inputs:
    """Open the image embeddings and choose the concepts.

    Args:
        embeddings: the store of image rows.
        captions: the catalog of captions and tags.
        source: where the concepts come from.
        order: a key of `fne.text.concepts.ORDERS`.
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
    learned, judged = (
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
    notes = [_density(concepts, len(hints)), *concepts.warnings(), *_left_out(concepts)]
    return Inputs(learned, judged, rows.features, concepts, hints, mean, deviation, lineage, notes)


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


def row_moments(rows: Rows, ids: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Return the mean and the deviation of each feature over some images (features), summed in float64."""
    mean, variance = np.zeros(rows.features), np.zeros(rows.features)
    for _, block in rows.blocks(ids):
        mean += block.sum(axis=0, dtype=np.float64) / len(ids)
    for _, block in rows.blocks(ids):
        variance += np.square(block - mean).sum(axis=0) / len(ids)
    return torch.from_numpy(mean).float(), torch.from_numpy(np.sqrt(variance)).float()


def from_tags(settings: FromTags) -> ConceptSource:
    """The tags of the data set."""

    def choose(training: Sequence[Captioned]) -> Concepts:
        return concepts_from_tags({record.id: record.tags for record in training}, settings.min_images)

    return ConceptSource(in_split, choose, lambda record: set(record.tags))


def from_words(settings: FromWords) -> ConceptSource:
    """The most frequent words of the training captions; an image has those that any of its captions has."""

    def choose(training: Sequence[Captioned]) -> Concepts:
        captions = {record.id: [ptb_words(each) for each in record.captions] for record in training}
        return concepts_from_words(captions, settings.count)

    return ConceptSource(captioned_in, choose, _words)


def _words(record: Captioned) -> set[str]:
    return {word for caption in record.captions for word in ptb_words(caption)}


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
CONCEPT_SOURCES: dict[str, Variant[ConceptSource]] = {
    "tags": Variant(from_tags, FromTags),
    "words": Variant(from_words, FromWords),
}
