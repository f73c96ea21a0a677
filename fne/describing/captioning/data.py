"""Images, their captions as sequences of word numbers, their concepts, and the order of training."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fne.core.errors import InputError
from fne.core.params import Section
from fne.describing.concepts import Concepts, ConceptSource, concept_source
from fne.describing.model import row_moments
from fne.store.artifact import Lineage
from fne.store.catalog import Captioned, in_split, read_captions, split_artifact
from fne.store.lineage import recorded_lineage
from fne.store.rows import Rows
from fne.text.caption_vocabulary import WORDS, CaptionWords, choose_caption_words, ptb_words
from fne.training.finished_runs import digest_of

SHOWN = 5  # images that a batch names in a message
ENOUGH = 3  # training captions per word; with 2.8, a captioner of photographs did not beat the baselines
MEASURED = "6,000 training images with 30,000 captions, 8.6 per word"


@dataclass(frozen=True)
class CaptionBatch:
    """Some captions, each with its image."""

    images: np.ndarray  # positions of images, one per caption (captions)
    captions: np.ndarray  # the number of each caption among those of its image (captions)
    examples: "Examples"

    def __len__(self) -> int:
        return len(self.images)

    def part(self, part: slice) -> "CaptionBatch":
        """Return the captions of one process."""
        return CaptionBatch(self.images[part], self.captions[part], self.examples)

    def sequences(self) -> list[list[int]]:
        """Return the numbers of the words of each caption, its end included."""
        chosen = zip(self.images, self.captions, strict=True)
        return [self.examples.sequences[image][caption] for image, caption in chosen]

    def lengths(self) -> list[int]:
        """Return the number of words of each caption, its end included."""
        return [len(each) for each in self.sequences()]

    def __str__(self) -> str:
        named = list(dict.fromkeys(self.examples.ids[position] for position in self.images))
        more = [f"and {len(named) - SHOWN} more"] if len(named) > SHOWN else []
        return f"images {', '.join([*named[:SHOWN], *more])}"


class Examples:
    """The captioned images of one split, with their rows, sequences and concepts.

    Attributes:
        ids: the image ids.
        references: the captions of each image, cut as published scores expect them.
        sequences: the captions of each image as numbers of words.
        labels: which concepts each image has (images, concepts).
    """

    def __init__(
        self,
        captioned: Sequence[Captioned],
        rows: Rows,
        cut: Callable[[str], list[str]],
        words: CaptionWords,
        concepts: Concepts,
        max_length: int,
        source: ConceptSource,
    ) -> None:
        self.ids = [record.id for record in captioned]
        rows.check_ids(self.ids)
        self._rows = rows
        self.references = {
            record.id: [" ".join(ptb_words(each)) for each in record.captions] for record in captioned
        }
        self.sequences = [
            [words.encode(cut(caption), max_length) for caption in record.captions] for record in captioned
        ]
        self.labels = concepts.labels(source.names(record) for record in captioned)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def caption_counts(self) -> np.ndarray:
        """How many captions each image has (images)."""
        return np.array([len(each) for each in self.sequences], dtype=np.int64)

    def images(self, positions: Sequence[int] | np.ndarray) -> Tensor:
        """Return image embeddings (images, features) in float32."""
        return torch.from_numpy(self._rows.read([self.ids[each] for each in positions], np.float32))

    def batches(self, seed: int, epoch: int, batch: int, captions: str) -> list[CaptionBatch]:
        """Return the batches of an epoch, in an order that seed and epoch alone decide."""
        generator = np.random.default_rng((seed, epoch))
        images, numbers = DRAWS[captions](self.caption_counts, generator)
        order = generator.permutation(len(images))
        return [
            CaptionBatch(images[chosen], numbers[chosen], self)
            for chosen in (order[start : start + batch] for start in range(0, len(order), batch))
        ]

    def steps(self, batch: int, captions: str) -> int:
        """Return the number of batches of an epoch."""
        drawn = len(self) if captions == "one" else int(self.caption_counts.sum())
        return -(-drawn // batch)

    def every_caption(self, positions: Sequence[int]) -> CaptionBatch:
        """Return all captions of some images."""
        counts = self.caption_counts[list(positions)]
        images = np.repeat(np.asarray(positions, dtype=np.int64), counts)
        return CaptionBatch(images, np.concatenate([np.arange(count) for count in counts]), self)


def one_caption(counts: np.ndarray, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Every image once, with one of its captions."""
    return np.arange(len(counts)), generator.integers(counts)


def all_captions(counts: np.ndarray, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Every caption once, with its image."""
    return np.repeat(np.arange(len(counts)), counts), np.concatenate([np.arange(each) for each in counts])


@dataclass(frozen=True)
class CaptioningInputs:
    """The training and validation data of a captioner, and its origin.

    Attributes:
        training: the training images.
        validation: the validation images.
        features: values of an image embedding.
        words: the words that the captioner writes.
        concepts: what it recognizes.
        mean: of each feature over the training images (features).
        deviation: of each feature over the training images (features).
        lineage: the artifacts that all of it was made from.
        read: the digests of what training reads, by which its result is kept.
        notes: remarks about the captions, for the user.
    """

    training: Examples
    validation: Examples
    features: int
    words: CaptionWords
    concepts: Concepts
    mean: Tensor
    deviation: Tensor
    lineage: Lineage
    read: dict[str, str]
    notes: list[str]

    def summary(self) -> str:
        """Describe what there is to learn from."""
        captions = int(self.training.caption_counts.sum())
        lines = [
            f"{len(self.training)} training images with {captions} captions, {len(self.words.words)} words, "
            f"{len(self.concepts.names)} concepts ({self.concepts.coverage:.0%} of the occurrences, "
            f"{self.concepts.density:.1f} per image)",
            *self.notes,
        ]
        return "\n".join(lines)


@dataclass(frozen=True)
class Reading:
    """How captions become sequences and concepts."""

    words: str  # a key of `fne.text.caption_vocabulary.WORDS`
    min_count: int
    max_words: int
    max_length: int
    concepts: str  # a key of `fne.describing.concepts.CONCEPT_SOURCES`
    concept_settings: Section


def read_inputs(embeddings: Path, captions: Path, reading: Reading) -> CaptioningInputs:
    """Open the image embeddings and cut the captions.

    Raises:
        InputError: if they do not belong together, if a split has too few images, or if no word is left.
    """
    rows = Rows.open(embeddings, "embeddings")
    captioned, catalog = read_captions(captions)
    lineage = recorded_lineage(rows.artifact, split_artifact(captions, captioned, "train"), catalog)
    training, validation = (
        [record for record in in_split(captioned, split) if record.captions] for split in ("train", "val")
    )
    _require_images(training, "train", 2, "training")
    _require_images(validation, "val", 2, "choosing the best epoch")
    cut = WORDS[reading.words]
    sentences = {record.id: [cut(caption) for caption in record.captions] for record in training}
    words = choose_caption_words(
        (each for own in sentences.values() for each in own), reading.min_count, reading.max_words
    )
    source = concept_source(reading.concepts, reading.concept_settings, cut)
    concepts = source.choose(training)
    train_examples, val_examples = (
        Examples(own, rows, cut, words, concepts, reading.max_length, source)
        for own in (training, validation)
    )
    mean, deviation = row_moments(rows, list(sentences))
    read = {"train": digest_of(rows, training), "val": digest_of(rows, validation)}
    notes = [
        *_few_captions(sentences, len(words.words)),
        *_cut_captions(captions, sentences, reading.max_length),
        *concepts.warnings(),
    ]
    return CaptioningInputs(
        train_examples, val_examples, rows.features, words, concepts, mean, deviation, lineage, read, notes
    )


def _require_images(captioned: Sequence[Captioned], split: str, least: int, purpose: str) -> None:
    if len(captioned) < least:
        raise InputError(
            f"the catalog has {len(captioned)} captioned images in split '{split}'; {purpose} of a captioner "
            f"needs at least {least}; see `catalog` in params.yaml"
        )


def _few_captions(sentences: Mapping[str, list[list[str]]], words: int) -> list[str]:
    per_word = sum(map(len, sentences.values())) / words
    warning = (
        f"Warning: {len(sentences)} training images are few for a captioner: {per_word:.1f} captions per "
        f"word, less than {ENOUGH}; expect captions no better than those of similar images. The figures of "
        f"docs/captions.md come from {MEASURED}"
    )
    return [warning] * (per_word < ENOUGH)


def _cut_captions(place: Path, sentences: Mapping[str, list[list[str]]], max_length: int) -> list[str]:
    lengths = [len(words) for own in sentences.values() for words in own]
    cut = sum(length > max_length for length in lengths)
    if cut == len(lengths):
        raise InputError(
            f"{place}: all {cut} training captions have more than {max_length} words; "
            "raise train_captioner.max_length"
        )
    return [f"{cut} of {len(lengths)} training captions are cut after {max_length} words"] * bool(cut)


DRAWS = {"all": all_captions, "one": one_caption}
