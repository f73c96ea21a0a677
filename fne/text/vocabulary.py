"""The words a text encoder knows, each with its number, and the settings of the `tokenize` stage."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from fne.core.errors import InputError
from fne.core.files import read_bytes, text_digest, write_text
from fne.core.settings import Section, one_of
from fne.store.artifact import (
    Artifact,
    Contents,
    Format,
    Kind,
    Lines,
    Sections,
    describe,
    parse_document,
    repair_hint,
    repeated,
    summary,
)
from fne.store.checksums import seal_text
from fne.text.tokenizer import CUTS

FORMAT = Format("fne-vocabulary", 2)
# No caption contains this word: both tokenizers cut at the brackets.
UNKNOWN = "<unk>"
DROP = "drop"
# What the artifacts of the stage are made with; they have the digest of the file of vectors.
SECTIONS: Sections = {"tokenize": {}}


class Tokenize(Section):
    """The `tokenize` section of `params.yaml`: how captions become words, and which words get a number."""

    # Never the test captions: a vocabulary that knows them leaks.
    vocabulary: Annotated[list[Annotated[str, one_of(("train", "val"))]], Field(min_length=1)] = Field(
        ["train", "val"], description="the splits whose words are in the vocabulary"
    )
    lowercase: bool = Field(True, description="whether words are converted to lower case")
    min_count: int = Field(1, ge=1, description="words that are rarer than this are unknown")
    end_of_sentence: bool = Field(False, description="whether a word of its own ends every caption")
    cut: Annotated[str, one_of(CUTS)] = Field(
        "nltk", description="how captions are cut: nltk keeps punctuation, split drops - . , ( ) ? < >"
    )
    longest: int = Field(0, ge=0, description="keep only this many words of a caption; 0: all")
    vectors: str = Field(
        "weights/random_words.yaml",
        min_length=1,
        description="a file of word vectors (GloVe, word2vec, npz, safetensors), or the store of "
        "captions that `fne import` wrote",
    )
    without_vector: Annotated[str, one_of(("drop", "mean", "random", "zero"))] = Field(
        "random", description="what becomes of words that the file of vectors does not have"
    )

    @model_validator(mode="after")
    def _end_is_kept(self) -> Self:
        if self.end_of_sentence and self.without_vector == DROP:
            raise ValueError(
                "end_of_sentence is true, but without_vector 'drop' drops the end, which has no vector; "
                "use without_vector=random"
            )
        return self

    def recorded(self, pretrained: bool) -> dict[str, Any]:
        """Return what artifacts record: `without_vector` only if there are `pretrained` vectors."""
        return self.model_dump(exclude={"vectors"} if pretrained else {"vectors", "without_vector"})


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
        """Return the numbers of a caption's words, as the settings of the vocabulary say.

        Unknown words are 0, or dropped. A long caption is cut; one without a word left becomes a 0.
        """
        numbers = [self.numbers.get(word, 0) for word in words]
        settings = self.artifact.settings
        if settings.get("without_vector") == DROP:
            numbers = [number for number in numbers if number]
        return numbers[: settings.get("longest") or None] or [0]


def choose_words(sentences: Iterable[Sequence[str]], min_count: int) -> list[str]:
    """Return the words that occur at least `min_count` times, frequent ones first.

    Example:
        >>> choose_words([["a", "dog"], ["a", "cat"]], min_count=1)
        ['<unk>', 'a', 'cat', 'dog']
    """
    counts = Counter(word for words in sentences for word in words)
    frequent = [word for word, count in counts.items() if count >= min_count]
    return [UNKNOWN, *sorted(frequent, key=lambda word: (-counts[word], word))]


def write_vocabulary(path: Path, words: Sequence[str], settings: dict[str, Any]) -> Vocabulary:
    """Write `vocabulary.json`, and return what it holds."""
    content = FORMAT.header() | describe("vocabulary", settings, {}, SECTIONS) | {"words": list(words)}
    text = seal_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n")
    write_text(path, text)
    artifact = Artifact(path, "vocabulary", text_digest(text), settings, sections=SECTIONS)
    return Vocabulary(artifact, list(words))


def read_vocabulary(path: Path) -> Vocabulary:
    """Read `vocabulary.json`, checking its seal."""
    content = read_bytes(path)
    document = parse_document(path, content, FORMAT, repair_hint(path))
    digest = hashlib.sha256(content).hexdigest()
    try:
        settings, sections = document["settings"], document.get("sections") or {}
        artifact = Artifact(path, "vocabulary", digest, settings, sections=sections)
        return Vocabulary(artifact, document["words"])
    except KeyError as error:
        raise InputError(f"{path}: damaged (no {error}); {repair_hint(path)}") from None


def _open(path: Path) -> Contents:
    vocabulary = read_vocabulary(path)
    return Contents(vocabulary.artifact, faults=repeated(path, vocabulary.words))


def _describe(path: Path) -> Lines:
    vocabulary = read_vocabulary(path)
    what = f"vocabulary, {len(vocabulary.words) - 1} words"
    return summary(vocabulary.artifact, what, f"frequent  {' '.join(vocabulary.words[1:11])}")


KIND = Kind("vocabulary.json", lambda path, _: _open(path), _open, _describe)
