"""The layout of a row store: one row of numbers per image or caption, in immutable HDF5 shards.

A store is a folder with `manifest.json` and shards. The hash of a row's id decides its shard, and ids are
sorted within a shard. So equal inputs give equal bytes in whatever order they were computed, and a few new
images change a few shards.

The rows of a shard are one contiguous, aligned block, which is read through a memory map: HDF5 itself would
be 10 to 100 times slower. HDF5 cannot check such a block, so the manifest has the SHA-256 of each shard.

Rows are stored as numbers of a NumPy type or, if they hold only -1, 0 and +1, as two bit planes (`ternary`):
which values are +1, and which are -1. A plane is ready for bitwise counting.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import DTypeLike
from pydantic import BaseModel, ConfigDict, Field, field_validator

from fne.core.files import text_digest
from fne.store.artifact import Format, Lineage, Lines, Sections

FORMAT = Format("fne-rows", 2)
MANIFEST = "manifest.json"
# The files of a store.
STORE_FILE = re.compile(r"manifest\.json|shard-[0-9]{4,9}\.h5")
ROWS = "rows"
TERNARY = "ternary"
# Between the name of a layer and the number of the view, where a row has several views of an image.
VIEW = "@"
# Features per layer: a row of this many numbers has 4 GB.
MAX_FEATURES = 10**9
# Bytes that are checked at once.
SLICE = 1 << 24

# The hardware that computed all rows or, if there are several, the ids of the rows that each computed.
Hardware = str | dict[str, list[str]]


@dataclass(frozen=True)
class Layer:
    """A named range of columns, such as the filters of one convolution."""

    name: str
    features: int


def view_layers(layers: Sequence[Layer], views: int) -> list[Layer]:
    """Return the layers of rows with several views of an image: all layers of a view, then the next view's.

    Example:
        >>> view_layers([Layer("fc7", 4)], 2)
        [Layer(name='fc7@1', features=4), Layer(name='fc7@2', features=4)]
    """
    return [
        Layer(f"{layer.name}{VIEW}{number}", layer.features)
        for number in range(1, views + 1)
        for layer in layers
    ]


def count_views(layers: Sequence[Layer]) -> int:
    """Return how many views of an image its row has; 1 for rows without views.

    Example:
        >>> count_views(view_layers([Layer("fc6", 4), Layer("fc7", 4)], 10)), count_views([Layer("fc7", 4)])
        (10, 1)
    """
    return len({layer.name.partition(VIEW)[2] for layer in layers if VIEW in layer.name}) or 1


def mean_of_views(block: np.ndarray, views: int) -> np.ndarray:
    """Return rows (rows, views x features) averaged over their views (rows, features).

    Example:
        >>> mean_of_views(np.array([[1.0, 2.0, 3.0, 6.0]]), 2)
        array([[2., 4.]])
    """
    if views == 1:
        return block
    averaged: np.ndarray = block.reshape(len(block), views, -1).mean(axis=1)
    return averaged


class Shard(BaseModel):
    """A file of the store, and the ids of its rows in their order."""

    model_config = ConfigDict(frozen=True)

    # A name and never a path: a store must not refer to files outside its folder.
    file: Annotated[str, Field(pattern=r"^shard-[0-9]{4,9}\.h5$")]
    sha256: str
    ids: list[str]

    @property
    def number(self) -> int:
        """The number in its name."""
        return int(self.file[len("shard-") : -len(".h5")])


class Manifest(BaseModel):
    """What `manifest.json` holds besides its format and seal; only activations record their hardware."""

    model_config = ConfigDict(frozen=True)

    name: str
    settings: dict[str, Any]
    sections: Sections = Field(default_factory=dict)
    lineage: Lineage
    dtype: Literal["ternary", "int8", "float16", "float32", "float64"]
    layers: list[tuple[str, Annotated[int, Field(ge=0, le=MAX_FEATURES)]]]
    processors: Hardware | None = None
    shards: list[Shard]

    @field_validator("shards")
    @classmethod
    def _listed_once(cls, shards: list[Shard]) -> list[Shard]:
        repeated = [file for file, count in Counter(shard.file for shard in shards).items() if count > 1]
        if repeated:
            raise ValueError(f"'{repeated[0]}' is listed twice")
        return shards


def width(features: int, dtype: str) -> int:
    """Return how many numbers a stored row has."""
    return 2 * -(-features // 8) if dtype == TERNARY else features


def shard_of(row_id: str, shards: int) -> int:
    """Return the number of the shard that holds a row, which depends on the id alone."""
    return int(text_digest(row_id)[:8], 16) % shards


def plan_shards(ids: Sequence[str], shards: int) -> dict[int, list[str]]:
    """Return the sorted ids of each shard that has any, by the number of the shard."""
    plan: dict[int, list[str]] = {}
    for row_id in sorted(ids):
        plan.setdefault(shard_of(row_id, shards), []).append(row_id)
    return dict(sorted(plan.items()))


def shard_name(number: int) -> str:
    """Return the file name of a shard."""
    return f"shard-{number:04d}.h5"


def pack(values: np.ndarray) -> np.ndarray:
    """Pack rows of -1, 0 and +1 into bytes: the plane of +1, then the plane of -1.

    Example:
        >>> pack(np.array([[1, 0, -1]], dtype=np.int8))
        array([[128,  32]], dtype=uint8)
    """
    return np.concatenate([np.packbits(values > 0, axis=1), np.packbits(values < 0, axis=1)], axis=1)


def unpack(planes: np.ndarray, features: int, dtype: DTypeLike = np.int8) -> np.ndarray:
    """Return the rows of -1, 0 and +1 that `pack` packed, in a signed type.

    Compiled loops and lookup tables were slower than NumPy when we measured them.

    Example:
        >>> unpack(np.array([[128, 32]], dtype=np.uint8), features=3)
        array([[ 1,  0, -1]], dtype=int8)
    """
    half = planes.shape[1] // 2
    values = np.unpackbits(planes[:, :half], axis=1, count=features).view(np.int8)
    values -= np.unpackbits(planes[:, half:], axis=1, count=features).view(np.int8)
    return values.astype(dtype, copy=False)


def value_fault(block: np.ndarray, dtype: str, ids: Sequence[str], layers: Sequence[Layer]) -> str | None:
    """Return the first value of stored rows (ids, numbers or bit planes) that no reader can use, or None."""
    find = _outside_ternary if dtype == TERNARY else _not_finite
    features = sum(layer.features for layer in layers)
    step = max(1, SLICE // max(1, block.itemsize * block.shape[1]))
    for start in range(0, len(block), step):
        place = find(block[start : start + step], features)
        if place is not None:
            row, column, value = place
            return (
                f"row {ids[start + row]!r} has {value} in layer '{layer_of(column, layers)}', column {column}"
            )
    return None


def layer_of(column: int, layers: Sequence[Layer]) -> str:
    """Return the name of the layer that a column belongs to.

    Example:
        >>> layer_of(2, [Layer("conv", 2), Layer("fc", 3)])
        'fc'
    """
    end = 0
    for layer in layers:
        end += layer.features
        if column < end:
            return layer.name
    return "none"


def _not_finite(block: np.ndarray, features: int) -> tuple[int, int, str] | None:
    finite = np.isfinite(block)
    if finite.all():
        return None
    row, column = (int(each) for each in np.argwhere(~finite)[0])
    return row, column, str(block[row, column])


def not_finite(path: Path, values: Mapping[str, np.ndarray]) -> Lines:
    """Return a fault for each array with values that are not finite."""
    return [
        f"{path}: '{name}' has {int((~np.isfinite(value)).sum())} values that are not finite"
        for name, value in values.items()
        if value.dtype.kind == "f" and not np.isfinite(value).all()
    ]


def _outside_ternary(planes: np.ndarray, features: int) -> tuple[int, int, str] | None:
    """Find a value that is both +1 and -1, or a bit that is set beyond the last feature."""
    half = planes.shape[1] // 2
    positive, negative = (np.unpackbits(plane, axis=1) for plane in (planes[:, :half], planes[:, half:]))
    wrong = positive & negative
    wrong[:, features:] = (positive | negative)[:, features:]
    if not wrong.any():
        return None
    row, column = (int(each) for each in np.argwhere(wrong)[0])
    return row, column, "neither -1, 0 nor +1"
