"""The mean and deviation of every feature over the training images."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fne.core.errors import InputError
from fne.store.arrays import read_arrays
from fne.store.lineage import Artifact
from fne.store.rows import Rows
from fne.store.values import value_fault

# Rows added at once: few enough to be copied where they must be, and looked through where one is faulty.
BLOCK = 1024


@dataclass(frozen=True)
class Statistics:
    """What is ordinary, per feature, in float64, and the images that say so."""

    mean: np.ndarray
    deviation: np.ndarray
    ids: list[str]

    @property
    def varies(self) -> np.ndarray:
        """Which features are not constant over the images."""
        return self.deviation > 0

    def only(self, columns: np.ndarray | slice) -> "Statistics":
        """Return the statistics of some features."""
        return Statistics(self.mean[columns], self.deviation[columns], self.ids)


class Moments:
    """Mean and population deviation of the rows added so far, in one pass and float64.

    A sum of squares would lose small variances altogether; here deviations are taken from
    means, and a constant feature has a deviation of exactly zero.

    Example:
        >>> moments = Moments(2)
        >>> moments.add(np.array([[1.0, 5.0], [3.0, 5.0]]))
        >>> moments.mean, moments.deviation
        (array([2., 5.]), array([1., 0.]))
    """

    def __init__(self, features: int) -> None:
        self.count = 0
        self.mean = np.zeros(features)
        self._squares = np.zeros(features)

    def add(self, block: np.ndarray, places: np.ndarray | None = None) -> None:
        """Add rows of a block (rows, features), all or those at some places.

        The block is not copied, unless it is of float16, which the compiled loops do not know.
        """
        from fne.features.loops import add_rows

        if block.dtype == np.float16 and places is not None:
            block, places = block[places], None
        chosen = np.arange(len(block)) if places is None else places
        add_rows(loopable(block), chosen, self.count, self.mean, self._squares)
        self.count += len(chosen)

    @property
    def deviation(self) -> np.ndarray:
        """The population deviation of each feature."""
        return np.sqrt(self._squares / self.count)


def fit(rows: Rows, ids: Sequence[str]) -> Statistics:
    """Fit mean and deviation of a store's features over some of its rows.

    Raises:
        InputError: naming the first row and layer with a value that is not finite.
    """
    moments = Moments(rows.features)
    numbers, places = rows.locate(ids)
    # In the order of the store, so that a disk is read from one end to the other.
    for number in np.unique(numbers):
        shard, block = rows.shards[number], rows.mapped_block(int(number))
        wanted = np.unique(places[numbers == number])
        for start in range(0, len(wanted), BLOCK):
            chosen = wanted[start : start + BLOCK]
            moments.add(block, chosen)
            # One value that is not finite makes the mean of its column not finite.
            if not np.isfinite(moments.mean).all():
                refuse_faults(rows, [shard.ids[place] for place in chosen], block[chosen])
    return Statistics(moments.mean, moments.deviation, list(ids))


def read_statistics(path: Path) -> tuple[Statistics, Artifact]:
    """Read `statistics.h5`.

    Raises:
        InputError: if it was written before it named its images.
    """
    arrays = read_arrays(path, "statistics")
    if "ids" not in arrays.values:
        raise InputError(f"{path}: does not say which images it was fitted on; run `dvc repro standardize`")
    return Statistics(arrays["mean"], arrays["deviation"], arrays.texts("ids")), arrays.artifact


def standardize(rows: np.ndarray, statistics: Statistics) -> np.ndarray:
    """Return z-scores in float64; a feature that never varies is ordinary everywhere.

    Example:
        >>> standardize(np.array([[3.0, 7.0]]), Statistics(np.array([1.0, 5.0]), np.array([2.0, 0.0]), []))
        array([[1., 0.]])
    """
    divisor = np.where(statistics.varies, statistics.deviation, 1.0)
    return np.where(statistics.varies, (rows - statistics.mean) / divisor, 0.0)


def refuse_faults(rows: Rows, ids: Sequence[str], block: np.ndarray) -> None:
    """Refuse a block of a store's rows that holds NaN or infinity, naming the row and the layer."""
    fault = value_fault(block, rows.dtype, ids, rows.layers)
    if fault:
        raise InputError(f"{rows.artifact.path}: {fault}; extract or import it again")


def loopable(block: np.ndarray) -> np.ndarray:
    """Return a block as the compiled loops take it: in one piece; float16, unknown to them, as float32."""
    return np.ascontiguousarray(block, dtype=np.float32 if block.dtype == np.float16 else block.dtype)
