"""The words a text encoder knows, each with its number."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fne.core.errors import InputError
from fne.store.files import file_digest, write_text
from fne.store.lineage import Artifact, describe

FORMAT = "fne-vocabulary"
VERSION = 1
# No caption contains this word: NLTK cuts it at the brackets.
UNKNOWN = "<unk>"


@dataclass(frozen=True)
class Vocabulary:
    """Words by their numbers; number 0 stands for every unknown word."""

    artifact: Artifact
    words: list[str]

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The number of each word."""
        return {word: number for number, word in enumerate(self.words)}

    def encode(self, words: Iterable[str]) -> list[int]:
        """Return the numbers of words, 0 for those that are unknown."""
        return [self.numbers.get(word, 0) for word in words]


def choose_words(sentences: Iterable[Sequence[str]], min_count: int) -> list[str]:
    """Return the words that occur at least `min_count` times, frequent ones first.

    Example:
        >>> choose_words([["a", "dog"], ["a", "cat"]], min_count=1)
        ['<unk>', 'a', 'cat', 'dog']
    """
    counts = Counter(word for words in sentences for word in words)
    frequent = [word for word, count in counts.items() if count >= min_count]
    return [UNKNOWN, *sorted(frequent, key=lambda word: (-counts[word], word))]


def write_vocabulary(path: Path, words: Sequence[str], settings: dict[str, Any]) -> None:
    """Write `vocabulary.json`."""
    header = {"format": FORMAT, "version": VERSION, **describe("vocabulary", settings, {})}
    write_text(path, json.dumps(header | {"words": list(words)}, ensure_ascii=False, indent=1) + "\n")


def read_vocabulary(path: Path) -> Vocabulary:
    """Read `vocabulary.json`.

    Raises:
        InputError: if it is missing, damaged or of a newer format.
    """
    digest = file_digest(path)
    try:
        content = json.loads(path.read_bytes())
        version, words, settings = (
            (content["format"], content["version"]),
            content["words"],
            content["settings"],
        )
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: damaged ({error!r}); remove it and run `dvc repro tokenize`") from None
    if version[0] != FORMAT or version[1] > VERSION:
        raise InputError(
            f"{path}: has format {version[0]} {version[1]}; this version reads {FORMAT} {VERSION}"
        )
    return Vocabulary(Artifact(path, "vocabulary", digest, settings), words)
