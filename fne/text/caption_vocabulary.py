"""The words of a captioner: how captions are cut, which words it writes, sequences as numbers.

The vocabulary of `tokenize` serves retrieval and is another one. Numbers of words are outputs of the decoder:
`END` is 0, `UNKNOWN` is 1, words follow. They are numbers and not names, so that a caption may hold any text.
`START` is an input only and comes last.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fne.core.errors import InputError
from fne.text.tokenizer import tokenize

END = 0
UNKNOWN = 1
_SPECIAL = 2  # outputs that are not words

# What coco-caption drops after tokenization. It keeps brackets, as words of their own.
_PUNCTUATION = {"''", "'", "``", "`", ".", "?", "!", ",", ":", "-", "--", "...", ";"}
_BRACKETS = {"(": "-lrb-", ")": "-rrb-", "[": "-lsb-", "]": "-rsb-", "{": "-lcb-", "}": "-rcb-"}


def ptb_words(caption: str) -> list[str]:
    """Cut a caption as coco-caption does: Penn Treebank words, lower case, without punctuation.

    On Flickr8k the words are those of coco-caption's Java tokenizer, except for 8 of 35,000 captions.

    Example:
        >>> ptb_words("A dog's ball, (red).")
        ['a', 'dog', "'s", 'ball', '-lrb-', 'red', '-rrb-']
    """
    words = tokenize(caption, lowercase=True)
    return [_BRACKETS.get(word, word) for word in words if word not in _PUNCTUATION]


def alphanumeric_words(caption: str) -> list[str]:
    """Cut a caption as Karpathy does: lower case, everything but letters and digits removed from words.

    Example:
        >>> alphanumeric_words("A dog's t-shirt .")
        ['a', 'dogs', 'tshirt']
    """
    words = (re.sub(r"[^a-z0-9]", "", word) for word in caption.lower().split())
    return [word for word in words if word]


@dataclass(frozen=True)
class CaptionWords:
    """The words that a captioner can write, frequent ones first, and how often training has them."""

    words: list[str]
    counts: list[int]
    unknown: int  # occurrences of words that were left out
    sentences: int

    @property
    def outputs(self) -> int:
        """The number of outputs of a decoder: words, `END` and `UNKNOWN`."""
        return len(self.words) + _SPECIAL

    @property
    def start(self) -> int:
        """The number of START, which is an input only."""
        return self.outputs

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The number of each word."""
        return {word: number for number, word in enumerate(self.words, start=_SPECIAL)}

    def encode(self, words: Sequence[str], max_length: int) -> list[int]:
        """Return the numbers of the first `max_length` words, followed by `END` if there are no more."""
        numbers = [self.numbers.get(word, UNKNOWN) for word in words[:max_length]]
        return numbers if len(words) > max_length else [*numbers, END]

    def decode(self, numbers: Iterable[int]) -> str:
        """Return the sentence that numbers of words stand for, up to `END`."""
        words = []
        for number in numbers:
            if number == END:
                break
            if number == UNKNOWN:
                raise ValueError("the unknown word has no spelling")
            words.append(self.words[number - _SPECIAL])
        return " ".join(words)

    def log_frequencies(self) -> np.ndarray:
        """Return the log frequency of each output in training (outputs), to start a decoder's biases with.

        An output that never occurs counts as half an occurrence.
        """
        counts = np.array([self.sentences, self.unknown, *self.counts], dtype=float)
        counts = np.maximum(counts, 0.5)
        frequencies: np.ndarray = np.log(counts / counts.sum())
        return frequencies


def choose_caption_words(sentences: Iterable[Sequence[str]], min_count: int, max_words: int) -> CaptionWords:
    """Choose the words of a captioner from the training captions.

    Example:
        >>> choose_caption_words([["a", "dog"], ["a", "cat"]], min_count=1, max_words=2).words
        ['a', 'cat']
    """
    listed = list(sentences)
    counts = Counter(word for words in listed for word in words)
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    chosen = [word for word in ranked if counts[word] >= min_count][:max_words]
    if not chosen:
        most = (
            f"the most frequent, {ranked[0]!r}, occurs {counts[ranked[0]]} times"
            if ranked
            else "there are none"
        )
        raise InputError(
            f"no word of the training captions is left with min_count {min_count} and max_words {max_words}: "
            f"{most}; lower min_count or check the captions"
        )
    unknown = counts.total() - sum(counts[word] for word in chosen)
    return CaptionWords(chosen, [counts[word] for word in chosen], unknown, len(listed))


CUTS: dict[str, Callable[[str], list[str]]] = {"alphanumeric": alphanumeric_words, "ptb": ptb_words}
