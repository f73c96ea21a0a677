"""What a tagger or a captioner is trained with, from the image embeddings and the catalog.

The concepts of both are the tags of the data set or the most frequent words of its training captions. With
tags, every image of a tagger counts, and one without tags teaches to write none. A captioner needs captions.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import Tensor

from fne.core.errors import InputError
from fne.describing.concepts import ORDERS, Concepts, ConceptSource, concept_source, membership, tag_sequences
from fne.describing.data import Examples
from fne.describing.model import row_moments
from fne.describing.model_file import Vocabulary
from fne.describing.settings import TrainCaptioner, TrainTagger
from fne.store.artifact import Lineage
from fne.store.catalog import Captioned, captioned_in, read_captions, split_artifact
from fne.store.lineage import recorded_lineage
from fne.store.rows import Rows
from fne.text.caption_vocabulary import CUTS, END, CaptionWords, choose_caption_words
from fne.training.finished_runs import digest_of
from fne.training.row_source import RowSource, StoreRows

PURPOSES = {"train": "training", "val": "choosing the best epoch"}  # what each split is for
ENOUGH = 3  # training captions per word; with 2.8, a captioner of photographs did not beat the baselines
MEASURED = "6,000 training images with 30,000 captions, 8.6 per word"

Sequences = list[list[list[int]]]  # the sequences of each image


@dataclass(frozen=True)
class Inputs:
    """The training and validation data of a tagger or captioner, and its origin."""

    training: Examples
    validation: Examples
    features: int  # values of an image row
    vocabulary: Vocabulary
    moments: tuple[Tensor, Tensor]  # mean and deviation of each feature over the training images (features)
    lineage: Lineage
    read: dict[str, str]  # the digests of what training reads, by which its result is kept
    notes: list[str]  # about what there is to learn from, for the user


@dataclass(frozen=True)
class Lesson:
    """What a catalog teaches, apart from the rows of its images."""

    training: list[Captioned]
    validation: list[Captioned]
    source: ConceptSource
    vocabulary: Vocabulary
    encode: Callable[[Sequence[Captioned], np.ndarray], Sequences]  # given images and their labels
    several: bool  # whether an image may have several sequences
    notes: list[str]

    def examples(self, records: Sequence[Captioned], source: RowSource) -> Examples:
        """Return images with what is learned about them."""
        labels = self.vocabulary.concepts.labels(self.source.names(record) for record in records)
        user_tags = user_tag_labels(records, self.vocabulary.user_tags)
        sequences = self.encode(records, labels)
        return Examples(records, source, labels, sequences, user_tags=user_tags, several=self.several)


def read_inputs(embeddings: Path, captions: Path, settings: TrainTagger | TrainCaptioner) -> Inputs:
    """Open the image embeddings, choose concepts and words, and encode what is learned."""
    rows = Rows.open(embeddings, "embeddings")
    captioned, catalog = read_captions(captions)
    lineage = recorded_lineage(rows.artifact, split_artifact(captions, captioned, "train"), catalog)
    lesson = choose_lesson(captions, captioned, settings)
    learned_from = (lesson.training, lesson.validation)
    source = StoreRows(rows, [record.id for own in learned_from for record in own])
    training, validation = (lesson.examples(own, source) for own in learned_from)
    read = {"train": digest_of(source, lesson.training), "val": digest_of(source, lesson.validation)}
    moments = row_moments(source, training.ids)
    return Inputs(
        training, validation, source.features, lesson.vocabulary, moments, lineage, read, lesson.notes
    )


def choose_lesson(
    place: Path, captioned: Sequence[Captioned], settings: TrainTagger | TrainCaptioner
) -> Lesson:
    """Choose the concepts and the words of a tagger or captioner."""
    if isinstance(settings, TrainTagger):
        return tags_to_learn(place, captioned, settings)
    return captions_to_learn(place, captioned, settings)


def tags_to_learn(place: Path, captioned: Sequence[Captioned], settings: TrainTagger) -> Lesson:
    """Choose the concepts of a tagger, which are the tags that it writes, and the user tags that it reads."""
    source = concept_source(settings.concepts, getattr(settings, settings.concepts))
    training, validation = (source.images(captioned, split) for split in PURPOSES)
    for records, (split, purpose) in zip((training, validation), PURPOSES.items(), strict=True):
        if not records:
            raise InputError(
                f"the catalog has no images to tag in split '{split}'; {purpose} of a tagger needs them; "
                "see `catalog` in params.yaml"
            )
    try:
        concepts = source.choose(training)
    except InputError as error:
        raise InputError(f"{place}: {error.message}") from None
    if not any(concepts.numbers.keys() & source.names(record) for record in validation):
        raise InputError(
            f"{place}: no image of split 'val' has any of the {len(concepts.names)} concepts, which "
            "choosing the best epoch needs; see `catalog` in params.yaml"
        )
    user_tags = (
        frequent_user_tags(training, settings.user_tag_settings.count, place)
        if settings.user_tag_settings
        else []
    )
    order = ORDERS[settings.order](concepts)

    def encode(records: Sequence[Captioned], labels: np.ndarray) -> Sequences:
        # Output 0 is END, so that the concept n is the output n + 1.
        return [[[number + 1 for number in each] + [END]] for each in tag_sequences(labels, order)]

    notes = [_density(concepts, len(user_tags)), *concepts.warnings(), *_left_out(concepts)]
    return Lesson(training, validation, source, Vocabulary(concepts, None, user_tags), encode, False, notes)


def captions_to_learn(place: Path, captioned: Sequence[Captioned], settings: TrainCaptioner) -> Lesson:
    """Choose the words of a captioner and its concepts."""
    training, validation = (captioned_in(captioned, split) for split in PURPOSES)
    for records, (split, purpose) in zip((training, validation), PURPOSES.items(), strict=True):
        if len(records) < 2:
            raise InputError(
                f"the catalog has {len(records)} captioned images in split '{split}'; {purpose} of a "
                "captioner needs at least 2; see `catalog` in params.yaml"
            )
    cut = CUTS[settings.cut]
    sentences = {record.id: [cut(caption) for caption in record.captions] for record in training}
    words = choose_caption_words(
        (each for own in sentences.values() for each in own), settings.min_count, settings.max_words
    )
    source = concept_source(settings.concepts, getattr(settings, settings.concepts), cut)
    concepts = source.choose(training)
    notes = [
        _captions(sentences, words, concepts),
        *_few_captions(sentences, len(words.words)),
        *_cut_captions(place, sentences, settings.max_length),
        *concepts.warnings(),
    ]

    def encode(records: Sequence[Captioned], labels: np.ndarray) -> Sequences:
        length = settings.max_length
        return [[words.encode(cut(each), length) for each in record.captions] for record in records]

    return Lesson(training, validation, source, Vocabulary(concepts, words), encode, True, notes)


def frequent_user_tags(training: Sequence[Captioned], count: int, place: Path) -> list[str]:
    """Return the most frequent user tags of the training images, ties broken alphabetically."""
    found = Counter(tag for record in training for tag in record.user_tags)
    if not found:
        raise InputError(
            f"{place}: train_tagger.user_tags is 'user', but no training image has user tags; add a column "
            "`user_tags` to the table of the data set, or use "
            "-S pipelines/tagging/params.yaml:train_tagger.user_tags=none"
        )
    return sorted(found, key=lambda tag: (-found[tag], tag))[:count]


def user_tag_labels(records: Sequence[Captioned], user_tags: Sequence[str]) -> np.ndarray | None:
    """Return which user tags images have (images, user tags); None if no user tags are read."""
    numbers = {tag: number for number, tag in enumerate(user_tags)}
    return membership(numbers, (record.user_tags for record in records)) if user_tags else None


def _density(concepts: Concepts, user_tags: int) -> str:
    read = f", {user_tags} user tags are read" if user_tags else ""
    return (
        f"{len(concepts.names)} concepts, {concepts.density:.1f} per training image, "
        f"{concepts.coverage:.1%} of all occurrences{read}"
    )


def _left_out(concepts: Concepts) -> list[str]:
    count = len(concepts.left_out)
    return [f"{count} tags of fewer training images than min_images are left out"] * bool(count)


def _captions(sentences: Mapping[str, list[list[str]]], words: CaptionWords, concepts: Concepts) -> str:
    return (
        f"{len(sentences)} training images with {sum(map(len, sentences.values()))} captions, "
        f"{len(words.words)} words, {len(concepts.names)} concepts ({concepts.coverage:.0%} of the "
        f"occurrences, {concepts.density:.1f} per image)"
    )


def _few_captions(sentences: Mapping[str, list[list[str]]], words: int) -> list[str]:
    per_word = sum(map(len, sentences.values())) / words
    warning = (
        f"Warning: {len(sentences)} training images are few for a captioner: {per_word:.1f} captions per "
        f"word, less than {ENOUGH}; expect captions no better than those of similar images. The figures of "
        f"docs/tags-and-captions.md come from {MEASURED}"
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
