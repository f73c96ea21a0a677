"""The mean and deviation of every feature over the training images.

Statistics are float64, computed in one pass over the store by compiled loops (`fne.features.kernels`).
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fne.core.errors import InputError
from fne.core.progress import progress
from fne.store.arrays import Arrays, Layout, read_arrays
from fne.store.artifact import Artifact, Lines
from fne.store.layout import value_fault
from fne.store.rows import Rows

# Rows added at once: few enough to be copied where needed, and to be searched for a value that is not finite.
BLOCK = 1024


@dataclass(frozen=True)
class Statistics:
    """Mean and deviation per feature, in float64, and the images they were fitted on."""

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

    Deviations are taken from means, because a sum of squares would lose small variances. A constant has 0.

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
        """Add all or some rows of a block (rows, features), without a copy except of float16."""
        from fne.features.kernels import add_rows  # numba: slow to import

        if block.dtype == np.float16 and places is not None:
            block, places = block[places], None
        chosen = np.arange(len(block)) if places is None else places
        add_rows(contiguous(block), chosen, self.count, self.mean, self._squares)
        self.count += len(chosen)

    @property
    def deviation(self) -> np.ndarray:
        """The population deviation of each feature."""
        return np.sqrt(self._squares / self.count)


def fit(rows: Rows, ids: Sequence[str], unit: str = "image") -> Statistics:
    """Fit mean and deviation of a store's features over some of its rows."""
    moments = Moments(rows.features)
    numbers, places = rows.locate(ids)
    with progress("statistics", len(ids), unit=unit) as shown:
        # In the order of the store, so that the disk is read sequentially.
        for number in np.unique(numbers):
            shard, block = rows.shards[number], rows.mapped_block(int(number))
            wanted = np.unique(places[numbers == number])
            for start in range(0, len(wanted), BLOCK):
                chosen = wanted[start : start + BLOCK]
                moments.add(block, chosen)
                # One value that is not finite makes the mean of its column not finite.
                if not np.isfinite(moments.mean).all():
                    check_finite(rows, [shard.ids[place] for place in chosen], block[chosen])
                shown.update(len(chosen))
    return Statistics(moments.mean, moments.deviation, list(ids))


def read_statistics(path: Path, of_captions: bool = False) -> tuple[Statistics, Artifact]:
    """Read `statistics.h5`, of images or of captions."""
    arrays = read_arrays(path, CAPTIONS_LAYOUT if of_captions else LAYOUT)
    return Statistics(arrays["mean"], arrays["deviation"], arrays.texts("ids")), arrays.artifact


def standardize(rows: np.ndarray, statistics: Statistics) -> np.ndarray:
    """Return z-scores in float64; those of a feature that does not vary are 0.

    Example:
        >>> standardize(np.array([[3.0, 7.0]]), Statistics(np.array([1.0, 5.0]), np.array([2.0, 0.0]), []))
        array([[1., 0.]])
    """
    divisor = np.where(statistics.varies, statistics.deviation, 1.0)
    return np.where(statistics.varies, (rows - statistics.mean) / divisor, 0.0)


def check_finite(rows: Rows, ids: Sequence[str], block: np.ndarray) -> None:
    """Refuse a block of a store's rows with NaN or infinity, naming the row and the layer."""
    fault = value_fault(block, rows.dtype, ids, rows.layers)
    if fault:
        raise InputError(f"{rows.artifact.path}: {fault}; extract or import it again")


def contiguous(block: np.ndarray) -> np.ndarray:
    """Return a block as the compiled loops read it: contiguous, and float16 as float32."""
    return np.ascontiguousarray(block, dtype=np.float32 if block.dtype == np.float16 else block.dtype)


def run_in_threads(work: Callable[[int, int], object], count: int) -> None:
    """Call `work(first, last)` for equal parts of `count` items, one for each thread that numba may use.

    Python threads are enough, since the compiled loops release the interpreter's lock. Numba's own threads
    would end the process after a fork, or when two callers use them at once. `numba.get_num_threads` would
    start them, and set the number of threads of OpenMP and so of torch.
    """
    import numba  # numba: slow to import

    threads = max(1, min(numba.config.NUMBA_NUM_THREADS, count))  # type: ignore[attr-defined]
    bounds = [count * part // threads for part in range(threads + 1)]
    if threads == 1:
        work(0, count)
        return
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, bounds[:-1], bounds[1:]))


def _faults(path: Path, arrays: Arrays) -> Lines:
    return [f"{path}: has negative deviations"] if (arrays["deviation"] < 0).any() else []


LAYOUT = Layout("statistics", {"deviation": "f features", "ids": "O rows", "mean": "f features"}, _faults)
CAPTIONS_LAYOUT = replace(LAYOUT, name="caption_statistics")
