"""Scores of generated captions: BLEU, ROUGE-L and CIDEr-D, as coco-caption defines them.

`bleu`, `rouge_l` and `cider_d` are called as `metric(candidates, references)`. `candidates` has one
sentence per image id and `references` one or more. A sentence is words separated by blanks: case
and punctuation count. `fne.text.caption_vocabulary` cuts raw captions the way published scores expect.

The values are those of pycocoevalcap 1.2. Three of its choices are easy to miss. BLEU adds 1e-15 to
matches and 1e-9 to counts, so that no match gives a score close to 0 and not an error. ROUGE-L takes the
maxima of precision and of recall over references separately. The length penalty of CIDEr-D
compares numbers of bigrams.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fne.core.errors import InputError

Sentences = Mapping[str, str | Sequence[str]]

LONGEST = 4  # words of an n-gram
COLLAPSED = 0.01  # a captioner with at most this fraction of distinct captions ignores the images
_TINY, _SMALL = 1e-15, 1e-9
_BETA = 1.2
_SIGMA = 6.0


class Score(NamedTuple):
    """A score of all images, and the score of each image in the order of the candidates."""

    score: float
    per_image: np.ndarray  # (images)


class BleuScore(NamedTuple):
    """BLEU-1 to BLEU-4 of all images, and of each image in the order of the candidates."""

    score: tuple[float, ...]  # (4)
    per_image: np.ndarray  # (4, images)


def bleu(candidates: Sentences, references: Sentences) -> BleuScore:
    """Return BLEU-1 to BLEU-4: clipped n-gram precision with a penalty for short captions.

    The score of all images pools the counts of all images. The reference length of an image is that
    of its reference closest in length, the shorter one on ties.

    Example:
        >>> score = bleu({"1": "a dog runs"}, {"1": ["a dog runs fast", "the dog runs"]}).score
        >>> [round(value, 3) for value in score]
        [1.0, 1.0, 1.0, 0.032]
    """
    counts = Corpus.of(candidates, references).bleu_counts
    total = bleu_of_counts(counts.sum(axis=0))
    return BleuScore(tuple(total.tolist()), bleu_of_counts(counts).T)


def rouge_l(candidates: Sentences, references: Sentences) -> Score:
    """Return ROUGE-L: the F-measure (beta 1.2) of longest common subsequences, averaged over images.

    Example:
        >>> round(rouge_l({"1": "a dog runs"}, {"1": ["a brown dog runs"]}).score, 4)
        0.8356
    """
    values = Corpus.of(candidates, references).rouge_values
    return Score(float(values.mean()), values)


def cider_d(candidates: Sentences, references: Sentences) -> Score:
    """Return CIDEr-D: clipped tf-idf similarity of n-grams to the references, averaged over images.

    The document frequency of an n-gram is the number of images with it in a reference. A single image is
    refused: every n-gram is then in all images, and CIDEr-D is 0 by definition.
    """
    corpus = Corpus.of(candidates, references)
    if len(corpus.ids) == 1:
        raise InputError(
            f"CIDEr-D of one image ({corpus.ids[0]!r}) is 0 by definition, because document frequencies "
            "need several images; score more images, or use BLEU and ROUGE-L"
        )
    values = corpus.cider_values
    return Score(float(values.mean()), values)


def summarize(
    candidates: Sentences, references: Sentences, training: Collection[str] = ()
) -> dict[str, float]:
    """Return all metrics of a set of captions by name.

    Further figures detect a captioner that repeats itself: `length_ratio` (words
    written by words of the closest references), `distinct_captions` and `found_in_training` (fractions of
    the images), `words_used` (different words) and `empty_captions` (a number). `CIDEr-D` is
    missing when there is only one image. `training` has the training captions, cut as the candidates are.
    """
    corpus = Corpus.of(candidates, references)
    counts = corpus.bleu_counts.sum(axis=0)
    found = dict(zip(BLEU_NAMES, bleu_of_counts(counts).tolist(), strict=True))
    found["ROUGE-L"] = float(corpus.rouge_values.mean())
    if len(corpus.ids) > 1:
        found["CIDEr-D"] = float(corpus.cider_values.mean())
    known = {" ".join(sentence.split()) for sentence in training}
    written = [" ".join(words) for words in corpus.candidates]
    found["length_ratio"] = float(counts[-2] / counts[-1]) if counts[-1] else 0.0
    found["distinct_captions"] = len(set(written)) / len(written)
    found["found_in_training"] = sum(each in known for each in written) / len(written)
    found["words_used"] = float(len({word for words in corpus.candidates for word in words}))
    found["empty_captions"] = float(sum(not words for words in corpus.candidates))
    return found


def collapse_warning(candidates: Sentences) -> str | None:
    """Return a warning about a captioner that writes the same for (nearly) all images, otherwise None.

    Example:
        >>> collapse_warning({"1": "a dog", "2": "a dog"})
        "the captioner ignores the images: 1 different caption for 2 images, most often 'a dog'"
        >>> collapse_warning({"1": "a dog", "2": "a cat"})
    """
    written = [_one_sentence(image, sentence) for image, sentence in candidates.items()]
    distinct = set(written)
    if len(written) < 2 or len(distinct) > max(1, COLLAPSED * len(written)):
        return None
    most = max(sorted(distinct), key=written.count)
    plural = "s" if len(distinct) > 1 else ""
    return (
        f"the captioner ignores the images: {len(distinct)} different caption{plural} for "
        f"{len(written)} images, most often {most!r}"
    )


@dataclass(frozen=True)
class NGrams:
    """How often each sentence has each n-gram, ordered by sentence and n-gram."""

    sentence: np.ndarray  # (entries)
    gram: np.ndarray  # (entries): numbers below `size`
    count: np.ndarray  # (entries)
    size: int


def count_n_grams(sentences: Sequence[Sequence[str]], longest: int = LONGEST) -> list[NGrams]:
    """Count the n-grams of sentences, for n from 1 to `longest`.

    An n-gram is numbered from the number of its first n - 1 words and its last word, so that
    all counting is on integers.
    """
    numbers: dict[str, int] = {}
    words = np.array(
        [numbers.setdefault(word, len(numbers)) for sentence in sentences for word in sentence],
        dtype=np.int64,
    )
    sentence = np.repeat(np.arange(len(sentences)), [len(each) for each in sentences])
    found: list[NGrams] = []
    grams, size = words, len(numbers)  # the n-gram that starts at each word
    for n in range(1, longest + 1):
        if n > 1:
            inside = sentence[n - 1 :] == sentence[: len(sentence) - n + 1]
            # Sentences that end before the n-th word keep a number that is not counted.
            pairs = grams[: len(inside)] * max(1, len(numbers)) + words[n - 1 :]
            unique, grams = np.unique(pairs, return_inverse=True)
            size = len(unique)
            holders, held = sentence[: len(inside)][inside], grams[inside]
        else:
            holders, held = sentence, grams
        keys, count = np.unique(holders * max(1, size) + held, return_counts=True)
        found.append(NGrams(keys // max(1, size), keys % max(1, size), count, size))
    return found


@dataclass(frozen=True)
class Corpus:
    """Candidates and references in words; sentences are numbered, candidates first."""

    ids: list[str]
    written: list[str]  # the candidate of each image
    expected: list[list[str]]  # the references of each image

    @classmethod
    def of(cls, candidates: Sentences, references: Sentences) -> "Corpus":
        """Check and cut the sentences of a set of images."""
        if not candidates:
            raise InputError("no captions to score: the candidates are empty")
        for one, other, what in (
            (candidates, references, "references"),
            (references, candidates, "candidate"),
        ):
            missing = [image for image in one if image not in other]
            if missing:
                raise InputError(
                    f"image {missing[0]!r} has no {what} (such images: {len(missing)}); "
                    "candidates and references must have the same images"
                )
        by_image = [_sentences(image, references[image], "reference") for image in candidates]
        for image, sentences in zip(candidates, by_image, strict=True):
            if not sentences:
                raise InputError(f"image {image!r} has no references; remove it or give it a caption")
        return cls(
            list(candidates),
            [_one_sentence(image, sentence) for image, sentence in candidates.items()],
            by_image,
        )

    @cached_property
    def candidates(self) -> list[list[str]]:
        """The words of each candidate."""
        return [sentence.split() for sentence in self.written]

    @cached_property
    def references(self) -> list[list[list[str]]]:
        """The words of each reference, by image."""
        return [[sentence.split() for sentence in sentences] for sentences in self.expected]

    @cached_property
    def image(self) -> np.ndarray:
        """The image of each sentence (sentences)."""
        images = np.arange(len(self.ids))
        return np.concatenate([images, np.repeat(images, [len(each) for each in self.references])])

    @cached_property
    def n_grams(self) -> list[NGrams]:
        """The n-grams of all sentences, candidates first."""
        return count_n_grams([*self.candidates, *(words for each in self.references for words in each)])

    @cached_property
    def bleu_counts(self) -> np.ndarray:
        """Matches (4), n-grams (4), words, and words of the closest reference of each image: (images, 10)."""
        images = len(self.ids)
        counts = np.zeros((images, 2 * LONGEST + 2))
        for n, grams in enumerate(self.n_grams):
            ours = grams.sentence < images
            keys = grams.sentence[ours] * max(1, grams.size) + grams.gram[ours]
            positions, held = self._in_candidate(keys, grams)
            allowed = np.zeros(len(keys), dtype=np.int64)  # the most that one reference has
            np.maximum.at(allowed, positions, grams.count[~ours][held])
            matches = np.minimum(grams.count[ours], allowed)
            counts[:, n] = np.bincount(grams.sentence[ours], weights=matches, minlength=images)
            counts[:, LONGEST + n] = np.bincount(
                grams.sentence[ours], weights=grams.count[ours], minlength=images
            )
        for row, candidate, references in zip(counts, self.candidates, self.references, strict=True):
            length = len(candidate)
            row[-2] = length
            row[-1] = min((len(each) for each in references), key=lambda other: (abs(other - length), other))
        return counts

    @cached_property
    def rouge_values(self) -> np.ndarray:
        """ROUGE-L of each image (images)."""
        # Only ROUGE-L cuts at single blanks, as in pycocoevalcap: between two of them is an empty word.
        pairs = zip(self.written, self.expected, strict=True)
        return np.array(
            [_rouge_l(one.split(" "), [each.split(" ") for each in several]) for one, several in pairs]
        )

    @cached_property
    def cider_values(self) -> np.ndarray:
        """CIDEr-D of each image (images)."""
        images, sentences = len(self.ids), len(self.image)
        similarity = np.zeros(sentences - images)  # each reference with its image's candidate
        bigrams = self.n_grams[1]
        lengths = np.bincount(bigrams.sentence, weights=bigrams.count, minlength=sentences)
        for grams in self.n_grams:
            ours = grams.sentence < images
            weights = grams.count * self._inverse_document_frequency(grams)[grams.gram]
            norms = np.sqrt(np.bincount(grams.sentence, weights=weights**2, minlength=sentences))
            keys = grams.sentence[ours] * max(1, grams.size) + grams.gram[ours]
            positions, held = self._in_candidate(keys, grams)
            theirs = weights[~ours][held]
            products = np.minimum(weights[ours][positions], theirs) * theirs
            holders = grams.sentence[~ours][held] - images
            dots = np.bincount(holders, weights=products, minlength=len(similarity))
            scale = norms[self.image[images:]] * norms[images:]
            similarity += np.divide(dots, scale, out=np.zeros(len(dots)), where=scale != 0)
        difference = lengths[self.image[images:]] - lengths[images:]
        similarity *= np.exp(-(difference**2) / (2 * _SIGMA**2)) / len(self.n_grams)
        totals = np.bincount(self.image[images:], weights=similarity, minlength=images)
        values: np.ndarray = 10 * totals / [len(each) for each in self.references]
        return values

    def _inverse_document_frequency(self, grams: NGrams) -> np.ndarray:
        images = len(self.ids)
        theirs = grams.sentence >= images
        held = np.unique(grams.gram[theirs] * images + self.image[grams.sentence[theirs]])
        frequency = np.bincount(held // images, minlength=grams.size)
        values: np.ndarray = math.log(images) - np.log(np.maximum(1, frequency))
        return values

    def _in_candidate(self, keys: np.ndarray, grams: NGrams) -> tuple[np.ndarray, np.ndarray]:
        """Find the references' n-grams in the candidates: positions of hits among entries of both.

        The keys are image and n-gram of each entry of the candidates, ascending.
        """
        theirs = grams.sentence >= len(self.ids)
        wanted = self.image[grams.sentence[theirs]] * max(1, grams.size) + grams.gram[theirs]
        if not len(keys):
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        positions = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        held = np.flatnonzero(keys[positions] == wanted)
        return positions[held], held


def bleu_of_counts(counts: np.ndarray) -> np.ndarray:
    """Return BLEU-1 to BLEU-4 (..., 4) from counts (..., 10)."""
    matches, ngrams = counts[..., :LONGEST], counts[..., LONGEST : 2 * LONGEST]
    precisions = np.cumprod((matches + _TINY) / (ngrams + _SMALL), axis=-1)
    ratio = (counts[..., -2] + _TINY) / (counts[..., -1] + _SMALL)
    penalty = np.exp(np.minimum(0.0, 1 - 1 / ratio))
    values: np.ndarray = precisions ** (1 / np.arange(1, LONGEST + 1)) * penalty[..., None]
    return values


def _rouge_l(candidate: list[str], references: list[list[str]]) -> float:
    common = [_common_subsequence(reference, candidate) for reference in references]
    precision = max(common) / max(1, len(candidate))
    recall = max(
        length / max(1, len(reference)) for length, reference in zip(common, references, strict=True)
    )
    if precision == 0 or recall == 0:
        return 0.0
    return (1 + _BETA**2) * precision * recall / (recall + _BETA**2 * precision)


def _common_subsequence(one: list[str], other: list[str]) -> int:
    """Return the length of the longest common subsequence.

    A column of the usual table is one integer: a bit is 0 where the length grows by one, and
    adding carries a match to the next such place (Hyyrö, 2004).
    """
    places: dict[str, int] = {}
    for position, word in enumerate(one):
        places[word] = places.get(word, 0) | 1 << position
    everything = (1 << len(one)) - 1
    column = everything
    for word in other:
        hits = column & places.get(word, 0)
        column = (column + hits) | (column - hits)
    return len(one) - (column & everything).bit_count()


def _one_sentence(image: str, sentence: str | Sequence[str]) -> str:
    sentences = _sentences(image, sentence, "candidate")
    if len(sentences) != 1:
        raise InputError(f"image {image!r} has {len(sentences)} candidates; it must have exactly one")
    return sentences[0]


def _sentences(image: str, given: object, what: str) -> list[str]:
    """Return a sentence, or several, as a list."""
    listed = list(given) if isinstance(given, Sequence) and not isinstance(given, str | bytes) else [given]
    texts: list[str] = []
    for each in listed:
        if not isinstance(each, str):
            raise InputError(f"image {image!r} has a {what} that is not text: {each!r}")
        texts.append(each)
    return texts


BLEU_NAMES = tuple(f"BLEU-{n}" for n in range(1, LONGEST + 1))
