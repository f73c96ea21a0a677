"""Captions as numbers of words: rows of different lengths in one array, one after the other."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fne.core.errors import InputError
from fne.store.arrays import Arrays, Layout, read_arrays, write_arrays
from fne.store.artifact import Artifact, Lineage, Lines, folder_kind, merge, repair_hint, repeated
from fne.text.vocabulary import SECTIONS, Vocabulary, write_vocabulary

# The files that the stage `tokenize` writes; `vectors.h5` only if vectors were given.
VOCABULARY, TOKENS, VECTORS = "vocabulary.json", "tokens.h5", "vectors.h5"
FOLDER = folder_kind(VOCABULARY, TOKENS)


@dataclass(frozen=True)
class Tokens:
    """The words of every caption, by the caption's id."""

    artifact: Artifact
    ids: list[str]
    words: np.ndarray
    offsets: np.ndarray

    def read(self, caption_id: str) -> np.ndarray:
        """Return the words of one caption."""
        position = self.positions[caption_id]
        return self.words[self.offsets[position] : self.offsets[position + 1]]

    def check_ids(self, ids: Sequence[str]) -> None:
        """Refuse ids that the file does not have."""
        missing = [each for each in ids if each not in self.positions]
        if missing:
            raise InputError(f"{self.artifact.path}: lacks caption {missing[0]!r}; run `dvc repro tokenize`")

    @cached_property
    def positions(self) -> dict[str, int]:
        """The position of each caption."""
        return {caption_id: position for position, caption_id in enumerate(self.ids)}


def write_words(
    vocabulary: Path,
    tokens: Path,
    sentences: Mapping[str, tuple[str, Sequence[str]]],
    words: Sequence[str],
    settings: dict[str, Any],
    catalog: Artifact,
) -> tuple[Vocabulary, dict[str, list[int]]]:
    """Write a vocabulary and all captions as numbers; `sentences` has split and words of each by its id."""
    known = write_vocabulary(vocabulary, words, settings)
    encoded = {caption_id: known.encode(own) for caption_id, (_, own) in sentences.items()}
    write_tokens(tokens, encoded, settings | {"words": len(known.words)}, merge(catalog, known.artifact))
    return known, encoded


def write_tokens(
    path: Path, captions: Mapping[str, Sequence[int]], settings: dict[str, Any], lineage: Lineage
) -> None:
    """Write `tokens.h5`."""
    lengths = [len(words) for words in captions.values()]
    arrays: dict[str, np.ndarray | Sequence[str]] = {
        "ids": list(captions),
        "words": np.array([word for words in captions.values() for word in words], dtype=np.int32),
        "offsets": np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64),
    }
    write_arrays(path, LAYOUT.name, arrays, settings, lineage, SECTIONS)


def read_tokens(path: Path) -> Tokens:
    """Read `tokens.h5`, checking its digests."""
    arrays = read_arrays(path, LAYOUT)
    fault = tokens_fault(arrays)
    if fault:
        raise InputError(f"{path}: {fault}; {repair_hint(path)}")
    return Tokens(arrays.artifact, arrays.texts("ids"), arrays["words"], arrays["offsets"])


def tokens_fault(arrays: Arrays) -> str | None:
    """Return what is wrong with the captions of a file of tokens, or None."""
    offsets, words, known = (
        arrays["offsets"],
        arrays["words"],
        arrays.artifact.settings.get("words", math.inf),
    )
    fits = len(offsets) == len(arrays["ids"]) + 1 and offsets[0] == 0 and offsets[-1] == len(words)
    if not fits or (np.diff(offsets) < 0).any():
        return "its captions do not fit its words"
    if not isinstance(known, int | float) or (len(words) and not 0 <= words.min() <= words.max() < known):
        return f"has words beyond the {known} of its vocabulary"
    return None


def _faults(path: Path, arrays: Arrays) -> Lines:
    fault = tokens_fault(arrays)
    return [f"{path}: {fault}"] * bool(fault) + repeated(path, arrays.texts("ids"))


LAYOUT = Layout(
    "tokens", {"ids": "O captions", "offsets": "i ends", "words": "i words"}, _faults, captions="ids"
)
