"""Captions as numbers of words: rows of different lengths, kept one after the other."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fne.core.errors import InputError
from fne.store.arrays import read_arrays, write_arrays
from fne.store.lineage import Artifact, Lineage


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
        """Where each caption stands."""
        return {caption_id: position for position, caption_id in enumerate(self.ids)}


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
    write_arrays(path, "tokens", arrays, settings, lineage)


def read_tokens(path: Path) -> Tokens:
    """Read `tokens.h5`, checking its digests."""
    arrays = read_arrays(path, "tokens")
    return Tokens(arrays.artifact, arrays.texts("ids"), arrays["words"], arrays["offsets"])
