"""Rows of captions in place of words: of a text network, or imported.

`tokenize.vectors` may name a store with a row per caption: what `embed_text` or `extract_text` wrote, or
`fne import --captions`. `captions/vectors.h5` then has the rows of all captions, in the order of the catalog,
and the text encoders `rows…` and the closed form with `text: rows` read them.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from fne.core.errors import InputError
from fne.store.arrays import Layout, read_arrays, write_arrays
from fne.store.artifact import Artifact, Lineage, merge
from fne.store.catalog import Captioned
from fne.store.layout import MANIFEST
from fne.store.rows import Rows
from fne.text.vocabulary import SECTIONS

ARTIFACT = "caption_rows"
LAYOUT = Layout(ARTIFACT, {"ids": "O captions", "vectors": "f captions dim"}, captions="ids")
STORES = ("caption_embeddings", "caption_features")


@dataclass(frozen=True)
class CaptionRows:
    """The rows (captions, dim) of all captions, in half or single precision, and their ids."""

    artifact: Artifact
    ids: list[str]
    values: np.ndarray

    @property
    def dim(self) -> int:
        """The length of each row."""
        return int(self.values.shape[1])

    @cached_property
    def positions(self) -> dict[str, int]:
        """The position of each caption."""
        return {caption_id: position for position, caption_id in enumerate(self.ids)}

    def check_ids(self, ids: Sequence[str]) -> None:
        """Refuse ids that the file does not have."""
        missing = [each for each in ids if each not in self.positions]
        if missing:
            raise InputError(f"{self.artifact.path}: lacks caption {missing[0]!r}; run `dvc repro tokenize`")

    def read(self, caption_id: str) -> np.ndarray:
        """Return a caption as the number of its row, as if this were its only word."""
        return np.array([self.positions[caption_id]])

    def rows(self, ids: Sequence[str]) -> np.ndarray:
        """Return the rows (captions, dim) of captions, in single precision."""
        found: np.ndarray = self.values[[self.positions[each] for each in ids]].astype(np.float32)
        return found

    def digest(self, ids: Sequence[str]) -> str:
        """Return the digest of the rows of captions; other rows do not change it."""
        return hashlib.sha256(self.rows(ids).tobytes()).hexdigest()


def is_caption_store(path: Path) -> bool:
    """Return whether a path is the folder of a row store."""
    return (path / MANIFEST).is_file()


def write_caption_rows(path: Path, store: Path, captioned: Sequence[Captioned], catalog: Artifact) -> int:
    """Write `vectors.h5` with the rows of all captions of a catalog, and return their length."""
    rows = Rows.open(store)
    if rows.artifact.name not in STORES:
        raise InputError(f"{store}: expected {' or '.join(STORES)}, found {rows.artifact.name}")
    ids = [each for record in captioned for each in record.caption_ids]
    known = set(rows.ids)
    missing = [each for each in ids if each not in known]
    if missing:
        raise InputError(
            f"{store}: has no vector for {len(missing)} of {len(ids)} captions, the first is {missing[0]!r}; "
            "import vectors of all captions, or run `dvc repro pipelines/text_network/dvc.yaml:embed_text`"
        )
    # Half precision is exact for ternary rows and whole numbers of one byte.
    exact = np.float32 if rows.dtype in ("float32", "float64") else np.float16
    arrays: dict[str, np.ndarray | Sequence[str]] = {"ids": ids, "vectors": rows.read(ids, exact)}
    lineage: Lineage = merge(rows.artifact, catalog)
    write_arrays(path, ARTIFACT, arrays, {"dim": rows.features}, lineage, SECTIONS)
    return rows.features


def read_caption_rows(path: Path) -> CaptionRows | None:
    """Read `vectors.h5`, checking its seal; return None without rows of captions."""
    if not path.exists():
        return None
    arrays = read_arrays(path, known=[LAYOUT])
    if arrays.artifact.name != ARTIFACT:
        return None
    return CaptionRows(arrays.artifact, arrays.texts("ids"), arrays["vectors"])


def has_caption_rows(lineage: Lineage) -> bool:
    """Return whether something was made from rows of captions in place of words."""
    return ARTIFACT in lineage
