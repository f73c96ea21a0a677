"""The words a text encoder knows, each with its number."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fne.core.errors import InputError
from fne.store.files import write_text
from fne.store.formats import Format, how_to_mend, parse_document, read_bytes, seal_text
from fne.store.lineage import Artifact, describe

FORMAT = Format("fne-vocabulary", 2)
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
    content = FORMAT.header() | describe("vocabulary", settings, {}) | {"words": list(words)}
    write_text(path, seal_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n"))


def read_vocabulary(path: Path) -> Vocabulary:
    """Read `vocabulary.json`, checking its seal.

    Raises:
        InputError: if it is missing, damaged or of a newer format.
    """
    content = read_bytes(path)
    document = parse_document(path, content, FORMAT, how_to_mend(path))
    digest = hashlib.sha256(content).hexdigest()
    try:
        return Vocabulary(Artifact(path, "vocabulary", digest, document["settings"]), document["words"])
    except KeyError as error:
        raise InputError(f"{path}: damaged (no {error}); {how_to_mend(path)}") from None
