"""The mean and deviation of every feature over the training images."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Statistics:
    """What is ordinary, per feature: the mean and the population deviation, in float64."""

    mean: np.ndarray
    deviation: np.ndarray
    images: int


def fit(blocks: Iterable[np.ndarray]) -> Statistics:
    """Fit mean and deviation in one pass over blocks of rows.

    Every block is shifted by the first row, which makes the deviation of a constant
    feature exactly zero, and blocks are merged after Chan et al.: sums of squares would
    lose small variances altogether.

    Raises:
        ValueError: if there are no rows.

    Example:
        >>> fit([np.array([[1.0, 5.0]]), np.array([[3.0, 5.0]])]).deviation
        array([1., 0.])
    """
    count, shift, mean, squares = 0, np.zeros(0), np.zeros(0), np.zeros(0)
    for block in blocks:
        if count == 0:
            shift = block[0].astype(np.float64)
            mean, squares = np.zeros_like(shift), np.zeros_like(shift)
        shifted = block.astype(np.float64) - shift
        block_mean = shifted.mean(axis=0)
        delta = block_mean - mean
        total = count + len(block)
        squares += ((shifted - block_mean) ** 2).sum(axis=0) + delta**2 * (count * len(block) / total)
        mean += delta * (len(block) / total)
        count = total
    if count == 0:
        raise ValueError("there are no rows to fit")
    return Statistics(mean + shift, np.sqrt(squares / count), count)


def standardize(rows: np.ndarray, statistics: Statistics) -> np.ndarray:
    """Return z-scores in float64; a feature that never varies is ordinary everywhere.

    Example:
        >>> standardize(np.array([[3.0, 7.0]]), Statistics(np.array([1.0, 5.0]), np.array([2.0, 0.0]), 2))
        array([[1., 0.]])
    """
    varies = statistics.deviation > 0
    divisor = np.where(varies, statistics.deviation, 1.0)
    return np.where(varies, (rows - statistics.mean) / divisor, 0.0)
