"""Mean and standard deviation of every feature over the training images, from files in the page cache."""

import tempfile
from pathlib import Path

import numpy as np

from benchmarks.timing import Ratio, compare, print_table, ratio
from fne.features.standardize import Statistics, fit
from fne.store.layout import Layer, plan_shards
from fne.store.rows import Rows, write_rows

CHUNK = 256
TWO_PASS, CHAN, OURS = "NumPy, float64, two passes", "NumPy, chunks merged as in Chan", "ours: one pass"


def statistics(images: int = 6000, features: int = 12416, rounds: int = 5) -> Ratio:
    """Fit the mean and deviation of 6,000 rows of 12,416, compared with two passes of NumPy in float64."""
    values = np.random.default_rng(0).standard_normal((images, features), dtype=np.float32)
    np.maximum(values, 0, out=values)
    ids = [f"{number:06d}.jpg" for number in range(images)]
    with tempfile.TemporaryDirectory() as folder:
        store, flat = Path(folder, "store"), Path(folder, "flat.npy")
        shards = (
            (number, own, values[[int(each[:6]) for each in own]])
            for number, own in plan_shards(ids, 4).items()
        )
        write_rows(store, "activations", [Layer("all", features)], "float32", shards, {}, {})
        np.save(flat, values)
        del values
        rows, mapped = Rows.open(store), np.load(flat, mmap_mode="r")
        _check(fit(rows, ids), two_passes(mapped))
        seconds = compare(
            {
                TWO_PASS: lambda: two_passes(mapped),
                CHAN: lambda: merged_chunks(mapped),
                OURS: lambda: fit(rows, ids),
            },
            rounds,
        )
    print_table(seconds, TWO_PASS, "rows", images)
    return ratio(seconds, OURS, TWO_PASS)


def tiny(folder: Path) -> None:
    """Run with little data."""
    statistics(images=40, features=64, rounds=1)


def two_passes(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and deviation, computed in two passes."""
    mean = values.mean(axis=0, dtype=np.float64)
    return mean, np.sqrt(((values - mean) ** 2).mean(axis=0))


def merged_chunks(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and deviation, computed in one pass over chunks that are merged as in Chan et al."""
    count, mean, squares = 0, np.zeros(values.shape[1]), np.zeros(values.shape[1])
    for start in range(0, len(values), CHUNK):
        chunk = values[start : start + CHUNK].astype(np.float64)
        own = chunk.mean(axis=0)
        delta, total = own - mean, count + len(chunk)
        squares += ((chunk - own) ** 2).sum(axis=0) + delta**2 * (count * len(chunk) / total)
        mean += delta * (len(chunk) / total)
        count = total
    return mean, np.sqrt(squares / count)


def _check(ours: Statistics, theirs: tuple[np.ndarray, np.ndarray]) -> None:
    assert np.allclose(ours.mean, theirs[0], rtol=1e-12)
    assert np.allclose(ours.deviation, theirs[1], rtol=1e-12)
