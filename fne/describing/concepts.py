"""Concepts: the labels that a concept head predicts, and the order in which a tagger writes them.

Concepts are the tags or the most frequent words of the training images. An image has a word as a concept if
at least one of its captions has it. Words without content, such as "a" and "is", are concepts only if
`stop_words` keeps them: as tags they say nothing, but a captioner writes them.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fne.core.errors import InputError
from fne.describing.settings import TagConcepts, WordConcepts
from fne.store.catalog import Captioned, captioned_in, in_split
from fne.text.caption_vocabulary import ptb_words

MIN_COVERAGE = 0.8  # share of word occurrences, below which concepts say little about the captions

# English words without content. Words for numbers, places ("behind"), colors and persons are not among them.
STOP_WORDS = frozenset(
    """
    a an the this that these those each every some any all both other another such same
    i you he she it we they me him her us them my your his its our their himself herself itself themselves
    one ones who whom whose which what there here
    am is are was were be been being has have had having do does did doing can could will would may might
    and or but nor so if as than then because while when where how also just only very too not no
    of in on at by for with from to into onto off out up down over about through during
    's n't ' ` - -- '' `` s t
    """.split()  # noqa: SIM905
)


@dataclass(frozen=True)
class Concepts:
    """Concepts with the number of training images that have each, and what they leave out."""

    names: list[str]
    counts: list[int]  # training images that have each concept
    images: int  # training images
    coverage: float  # the fraction of the occurrences of words or tags that are concepts
    left_out: list[str]  # tags of the training images that are not concepts

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The number of each concept."""
        return {name: number for number, name in enumerate(self.names)}

    @property
    def frequencies(self) -> np.ndarray:
        """The fraction of the training images that have each concept (concepts)."""
        return np.array(self.counts) / self.images

    @property
    def density(self) -> float:
        """The mean number of concepts per training image."""
        return sum(self.counts) / self.images

    def labels(self, images: Iterable[Iterable[str]]) -> np.ndarray:
        """Return which concepts images have, given the words or tags of each (images, concepts)."""
        return membership(self.numbers, images)

    def warnings(self) -> list[str]:
        """Return sentences about concepts that say little: too few words, or true of all training images."""
        found = []
        if self.coverage < MIN_COVERAGE:
            found.append(
                f"the {len(self.names)} concepts cover {self.coverage:.0%} of the occurrences, "
                f"less than {MIN_COVERAGE:.0%}; raise {_key('words.count')}, or lower "
                "min_images there"
            )
        always = [name for name, count in zip(self.names, self.counts, strict=True) if count == self.images]
        if always:
            found.append(f"every training image has {_listed(always)}, which cannot tell images apart")
        return found


def membership(numbers: Mapping[str, int], images: Iterable[Iterable[str]]) -> np.ndarray:
    """Return which numbered names images have, given all names of each (images, names).

    Example:
        >>> membership({"dog": 0, "sea": 1}, [["sea", "sky"], []]).tolist()
        [[False, True], [False, False]]
    """
    rows = [[numbers[name] for name in set(names) if name in numbers] for names in images]
    mask = np.zeros((len(rows), len(numbers)), dtype=bool)
    for row, own in zip(mask, rows, strict=True):
        row[own] = True
    return mask


@dataclass(frozen=True)
class ConceptSource:
    """Where concepts come from."""

    images: Callable[[Iterable[Captioned], str], list[Captioned]]  # a split's images that can have concepts
    choose: Callable[[Sequence[Captioned]], Concepts]  # from the training images
    names: Callable[[Captioned], set[str]]  # that an image has, whether they are concepts or not


def concepts_from_words(
    captions: Mapping[str, Sequence[Sequence[str]]], count: int, min_images: int = 1
) -> Concepts:
    """Take the most frequent words of the training captions, ties broken alphabetically.

    Args:
        captions: the captions of each training image, cut into words.
        count: the number of concepts; fewer where the captions have fewer words.
        min_images: words of fewer training images are left out.

    Example:
        >>> concepts_from_words({"1": [["a", "dog"], ["a", "man"]], "2": [["a", "dog"]]}, count=2).names
        ['a', 'dog']
    """
    _refuse_no_images(captions)
    occurrences = Counter(word for sentences in captions.values() for words in sentences for word in words)
    if not occurrences:
        raise InputError("concepts: the training captions have no words; check the captions")
    images = Counter(
        word for sentences in captions.values() for word in {word for words in sentences for word in words}
    )
    frequent = [word for word in occurrences if images[word] >= min_images]
    if not frequent:
        word, found = max(images.items(), key=lambda each: each[1])
        raise InputError(
            f"concepts: no word has {min_images} training images; the most frequent, {word!r}, has {found}; "
            f"lower {_key('words.min_images')}"
        )
    names = sorted(frequent, key=lambda word: (-occurrences[word], word))[:count]
    covered = sum(occurrences[name] for name in names) / occurrences.total()
    return Concepts(names, [images[name] for name in names], len(captions), covered, [])


def concepts_from_tags(tags: Mapping[str, Sequence[str]], min_images: int = 1) -> Concepts:
    """Take the tags of the training images, frequent ones first, ties broken alphabetically.

    A tag that no training image has cannot be learned. It is not a concept, but it stays among the true tags
    of other images and counts against recall. So do tags of fewer than `min_images` training images.
    """
    _refuse_no_images(tags)
    counts = Counter(tag for names in tags.values() for tag in set(names))
    if not counts:
        raise InputError(
            "concepts: no training image has tags; tagging needs them (COCO's instances_*.json or a `tags` "
            "column), or set train_tagger.concepts to words (for a captioner: train_captioner.concepts)"
        )
    ranked = sorted(counts, key=lambda tag: (-counts[tag], tag))
    names = [tag for tag in ranked if counts[tag] >= min_images]
    if not names:
        raise InputError(
            f"concepts: no tag has {min_images} training images; the most frequent, {ranked[0]!r}, has "
            f"{counts[ranked[0]]}; lower {_key('tags.min_images')}"
        )
    covered = sum(counts[name] for name in names) / counts.total()
    return Concepts(names, [counts[name] for name in names], len(tags), covered, ranked[len(names) :])


def from_tags(cut: Callable[[str], list[str]], settings: TagConcepts) -> ConceptSource:
    """The tags of the data set. Every image of a split counts, also one without tags."""

    def choose(training: Sequence[Captioned]) -> Concepts:
        return concepts_from_tags({record.id: record.tags for record in training}, settings.min_images)

    return ConceptSource(in_split, choose, lambda record: set(record.tags))


def from_words(cut: Callable[[str], list[str]], settings: WordConcepts) -> ConceptSource:
    """The most frequent words of the training captions. Images without captions do not count."""
    dropped = STOP_WORDS if settings.stop_words == "drop" else frozenset()

    def words(caption: str) -> list[str]:
        return [word for word in cut(caption) if word not in dropped]

    def choose(training: Sequence[Captioned]) -> Concepts:
        captions = {record.id: [words(each) for each in record.captions] for record in training}
        return concepts_from_words(captions, settings.count, settings.min_images)

    def names(record: Captioned) -> set[str]:
        return {word for caption in record.captions for word in words(caption)}

    return ConceptSource(captioned_in, choose, names)


def concept_source(
    name: str, settings: TagConcepts | WordConcepts, cut: Callable[[str], list[str]] = ptb_words
) -> ConceptSource:
    """Return a source of `CONCEPT_SOURCES` with the settings of its block; `cut` makes words of a caption."""
    return CONCEPT_SOURCES[name](cut, settings)


def recorded_source(settings: Mapping[str, Any]) -> ConceptSource:
    """Return where the concepts of a tagger came from, by the settings that its file records."""
    name = settings["concepts"]
    schema = TagConcepts if name == "tags" else WordConcepts
    return concept_source(name, schema.model_validate(settings[name]))


def frequent_first(concepts: Concepts) -> np.ndarray:
    """Return the numbers of the concepts by falling training frequency (concepts)."""
    ranked = sorted(concepts.names, key=lambda name: (-concepts.counts[concepts.numbers[name]], name))
    return np.array([concepts.numbers[name] for name in ranked])


def rare_first(concepts: Concepts) -> np.ndarray:
    """Return the numbers of the concepts by rising training frequency, ties alphabetically (concepts).

    The rare tags of an image come first, so that the frequent ones do not hide them.
    """
    ranked = sorted(concepts.names, key=lambda name: (concepts.counts[concepts.numbers[name]], name))
    return np.array([concepts.numbers[name] for name in ranked])


def tag_sequences(labels: np.ndarray, order: np.ndarray) -> list[list[int]]:
    """Return the concepts of each image, in the order in which a tagger writes them (an entry of `ORDERS`).

    Shapes: `labels` (images, concepts), `order` (concepts).

    Example:
        >>> tag_sequences(np.array([[True, True, False], [False, False, False]]), np.array([2, 1, 0]))
        [[1, 0], []]
    """
    return [order[row].tolist() for row in labels.astype(bool)[:, order]]


def _refuse_no_images(images: Mapping[str, object]) -> None:
    if not images:
        raise InputError("concepts: there are no training images; check the splits of the data set")


def _key(name: str) -> str:
    """Return the full name of a key of concepts, of a tagger and of a captioner."""
    return f"train_tagger.{name} (for a captioner: train_captioner.{name})"


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more concepts"


CONCEPT_SOURCES: dict[str, Callable[..., ConceptSource]] = {"tags": from_tags, "words": from_words}
ORDERS: dict[str, Callable[[Concepts], np.ndarray]] = {
    "frequent_first": frequent_first,
    "rare_first": rare_first,
}
