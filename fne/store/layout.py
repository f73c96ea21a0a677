"""The layout of a row store: one row of numbers per image or caption, in immutable HDF5 shards.

A store is a folder with `manifest.json` and shards. A row's shard is a hash of its id,
and within a shard the ids are sorted, so that equal inputs give equal bytes whatever
the order of computation, and a few new images change a few shards. The rows of a shard
are one contiguous, aligned block, which is read through a memory map; HDF5 itself
would be 10 to 100 times slower and cannot check a contiguous block, so the manifest,
itself sealed (see `fne.store.formats`), holds the SHA-256 of every shard, checked before
its first read.

Rows are kept as numbers of a NumPy type or, where they hold only -1, 0 and +1, as two
bit planes (`ternary`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from fne.store.files import text_digest
from fne.store.formats import Format
from fne.store.lineage import Lineage

FORMAT = Format("fne-rows", 2)
MANIFEST = "manifest.json"
ROWS = "rows"
TERNARY = "ternary"


@dataclass(frozen=True)
class Layer:
    """A named run of columns, such as the filters of one convolution."""

    name: str
    features: int


class Shard(BaseModel):
    """A file of the store, and the ids of its rows in their order."""

    model_config = ConfigDict(frozen=True)

    # A name and never a path: a store must not lead to files elsewhere.
    file: Annotated[str, Field(pattern=r"^shard-[0-9]{4,9}\.h5$")]
    sha256: str
    ids: list[str]

    @property
    def number(self) -> int:
        """The number in its name."""
        return int(self.file[len("shard-") : -len(".h5")])


# The name of the processor that computed all rows, or of several with the ids of the rows of each.
Processors = str | dict[str, list[str]]


class Manifest(BaseModel):
    """What `manifest.json` holds besides its format and seal; only activations name their processors."""

    model_config = ConfigDict(frozen=True)

    name: str
    settings: dict[str, Any]
    lineage: Lineage
    dtype: Literal["ternary", "float16", "float32", "float64"]
    layers: list[tuple[str, Annotated[int, Field(ge=0)]]]
    processors: Processors | None = None
    shards: list[Shard]


def width(features: int, dtype: str) -> int:
    """Return how many numbers a row takes in its shard."""
    return 2 * -(-features // 8) if dtype == TERNARY else features


def shard_of(row_id: str, shards: int) -> int:
    """Return the number of the shard that keeps a row: a matter of its id alone."""
    return int(text_digest(row_id)[:8], 16) % shards


def plan_shards(ids: Sequence[str], shards: int) -> dict[int, list[str]]:
    """Return the sorted ids of each shard that has any."""
    plan: dict[int, list[str]] = {}
    for row_id in sorted(ids):
        plan.setdefault(shard_of(row_id, shards), []).append(row_id)
    return dict(sorted(plan.items()))


def shard_name(number: int) -> str:
    """Return the file name of a shard."""
    return f"shard-{number:04d}.h5"
