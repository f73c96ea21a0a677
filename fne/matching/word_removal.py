"""Words that matter: how much the score of an image and a sentence drops when one word is left out.

A sentence without one of its words is encoded as any sentence, so this works with every text encoder. All
variants of all sentences are encoded in one call.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from fne.text.tokenizer import END, tokenize
from fne.text.vocabulary import Vocabulary

# Maps the word numbers of sentences to their vectors (sentences, dim) in the joint space.
Encoder = Callable[[Sequence[Sequence[int]]], np.ndarray]
# Levels of the colors behind words, on each side of 0.
LEVELS = 4
# NLTK's tokenizer writes a quote so.
QUOTES = ("``", "''")


@dataclass(frozen=True)
class Word:
    """A word of a sentence, as it stands there."""

    text: str
    drop: float  # by how much the score is lower without it; below 0 if the sentence fits better without it


@dataclass(frozen=True)
class Removals:
    """The words of a sentence, and what is encoded: the whole sentence, then without each word."""

    words: list[str]
    variants: list[Any]  # word numbers, or text


def leave_out(text: str, vocabulary: Vocabulary) -> Removals:
    """Return a sentence without each of its words, as the captions were converted."""
    settings = vocabulary.artifact.settings
    tokens = tokenize(text, settings["lowercase"], cut=settings["cut"])
    end = [END] if settings.get("end_of_sentence") else []
    variants = [tokens, *(tokens[:place] + tokens[place + 1 :] for place in range(len(tokens)))]
    return Removals(as_written(text, tokens), [vocabulary.encode([*each, *end]) for each in variants])


def leave_out_of_text(text: str) -> Removals:
    """Return a sentence without each of its words, as text; of a single word, nothing is left out.

    Example:
        >>> leave_out_of_text("A red dog").variants
        ['A red dog', 'red dog', 'A dog', 'A red']
    """
    words = text.split()
    if len(words) < 2:
        return Removals([], [text])
    return Removals(words, [text, *(" ".join(words[:at] + words[at + 1 :]) for at in range(len(words)))])


def encode_removals(
    removals: Sequence[Removals], encode: Callable[[list[Any]], np.ndarray]
) -> list[np.ndarray]:
    """Return the vectors (1 + words, dim) of each sentence: the whole one first, then without each word."""
    vectors = encode([variant for each in removals for variant in each.variants])
    ends = list(accumulate(len(each.variants) for each in removals))
    return np.split(vectors, ends[:-1])


def score_words(
    words: Sequence[str], image: np.ndarray, vectors: np.ndarray, compare: Callable[..., np.ndarray]
) -> list[Word]:
    """Return words with the drops of the score, given an image (dim) and the vectors of `encode_removals`."""
    scores = np.ravel(compare(image[None], vectors)).astype(np.float64)
    return [Word(word, float(scores[0] - score)) for word, score in zip(words, scores[1:], strict=True)]


def as_written(text: str, tokens: Sequence[str]) -> list[str]:
    """Return words as they stand in a text, with its capitals and quotes; what is not found stays as it is.

    Example:
        >>> as_written("A Dog's “ball”.", ["a", "dog", "'s", "``", "ball", "''", "."])
        ['A', 'Dog', "'s", '``', 'ball', "''", '.']
        >>> as_written('A "Dog"', ["a", "``", "dog", "''"])
        ['A', '"', 'Dog', '"']
    """
    lowered, place, found = text.lower(), 0, []
    for token in tokens:
        wanted = '"' if token in QUOTES and token not in text else token.lower()
        at = lowered.find(wanted, place) if len(lowered) == len(text) else -1
        if at >= 0:
            place = at + len(wanted)
        found.append(text[at:place] if at >= 0 else token)
    return found


def levels(words: Sequence[Word]) -> list[int]:
    """Return the level of the color behind each word, from -4 to 4, relative to the largest drop.

    Example:
        >>> levels([Word("a", 0.01), Word("dog", 0.2), Word("in", -0.05)])
        [0, 4, -1]
    """
    largest = max((abs(each.drop) for each in words), default=0.0)
    return [round(LEVELS * each.drop / largest) if largest else 0 for each in words]
