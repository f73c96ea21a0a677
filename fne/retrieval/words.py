"""The words of a typed sentence, as the model reads them."""

from collections.abc import Sequence
from dataclasses import dataclass

from fne.captions.tokens import END, tokenize
from fne.captions.vocabulary import Vocabulary
from fne.core.errors import InputError


@dataclass(frozen=True)
class Sentence:
    """A sentence as numbers of words, and its words that the model has never read."""

    text: str
    numbers: list[int]
    unknown: list[str]


def read_sentence(text: str, vocabulary: Vocabulary) -> Sentence:
    """Turn a sentence into numbers, exactly as the captions were.

    Raises:
        InputError: if nothing is asked for, or nothing that the model knows.
    """
    settings = vocabulary.artifact.settings
    words = tokenize(text, settings["lowercase"])
    telling = [word for word in words if any(letter.isalnum() for letter in word)]
    if not telling:
        raise InputError(f"the query {text!r} has no words; describe what the image shows")
    unknown = list(dict.fromkeys(word for word in telling if word not in vocabulary.numbers))
    if all(word in unknown for word in telling):
        raise InputError(
            f"the model knows no word of {text!r}; it knows the {len(vocabulary.words) - 1} words of "
            f"{vocabulary.artifact.path}, such as {_examples(vocabulary.words)}"
        )
    if settings.get("end_of_sentence"):
        words = [*words, END]
    return Sentence(text, vocabulary.encode(words), unknown)


def _examples(words: Sequence[str]) -> str:
    return ", ".join([word for word in words[1:] if len(word) > 2][:5])
