"""Vectors of captions that another program computed, in place of words.

`tokenize.vectors` may name a store that `fne import --captions` wrote. `captions/vectors.h5` then has one
vector per caption, in the order of the catalog. To a model, every caption is one word with a vector of its
own: its number, counted from 1. So text encoders that average word vectors are heads over imported vectors.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fne.core.errors import InputError
from fne.store.arrays import read_arrays, write_arrays
from fne.store.artifact import Artifact, Lineage, merge
from fne.store.catalog import Captioned
from fne.store.layout import MANIFEST
from fne.store.rows import Rows
from fne.text.tokens import Tokens
from fne.text.vocabulary import SECTIONS
from fne.text.word_vectors import ARTIFACT, LAYOUT, WordVectors

STORE = "caption_features"
KIND = "captions"


@dataclass(frozen=True)
class CaptionVectors:
    """The vectors (captions, dim) of all captions, in float32, and their ids."""

    artifact: Artifact
    ids: list[str]
    values: np.ndarray

    @property
    def dim(self) -> int:
        """The length of each vector."""
        return int(self.values.shape[1])

    def tokens(self, captions: Tokens) -> Tokens:
        """Return captions as numbers of one word each; `captions` are those of the same catalog."""
        count = len(self.ids)
        return Tokens(
            captions.artifact, self.ids, np.arange(1, count + 1, dtype=np.int32), np.arange(count + 1)
        )

    def words(self) -> WordVectors:
        """Return the vectors by these numbers; number 0, the unknown word, is zero."""
        values = np.concatenate([np.zeros((1, self.dim), np.float32), self.values])
        return WordVectors(self.artifact, values, np.arange(len(values)) > 0)


def is_caption_store(path: Path) -> bool:
    """Return whether a path is the folder of a row store."""
    return (path / MANIFEST).is_file()


def write_caption_vectors(path: Path, store: Path, captioned: Sequence[Captioned], catalog: Artifact) -> int:
    """Write `vectors.h5` with the vectors of all captions of a catalog, and return their length."""
    rows = Rows.open(store, STORE)
    ids = [each for record in captioned for each in record.caption_ids]
    known = set(rows.ids)
    missing = [each for each in ids if each not in known]
    if missing:
        raise InputError(
            f"{store}: has no vector for {len(missing)} of {len(ids)} captions, the first is {missing[0]!r}; "
            "import vectors of all captions"
        )
    arrays: dict[str, np.ndarray | Sequence[str]] = {
        "ids": ids,
        "vectors": rows.read(ids, np.float32),
    }
    lineage: Lineage = merge(rows.artifact, catalog)
    write_arrays(path, ARTIFACT, arrays, {"kind": KIND, "dim": rows.features}, lineage, SECTIONS)
    return rows.features


def read_caption_vectors(path: Path) -> CaptionVectors | None:
    """Read `vectors.h5`, checking its seal; return None without vectors of captions."""
    if not path.exists():
        return None
    arrays = read_arrays(path, LAYOUT)
    if arrays.artifact.settings["kind"] != KIND:
        return None
    return CaptionVectors(arrays.artifact, arrays.texts("ids"), arrays["vectors"])


def has_caption_vectors(lineage: Lineage) -> bool:
    """Return whether something was made from imported vectors of captions."""
    settings = lineage.get(ARTIFACT, {}).get("settings", {})
    return bool(settings.get("kind") == KIND)
