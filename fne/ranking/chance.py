"""What blind guessing would score: a shuffled pool in which each query has some true items.

A recall means little without it: 10 % is poor among 10 images and splendid among 5,000.
Every function takes the size of the `pool` that is searched and `true_counts`, the
number of true items of each query.
"""

import numpy as np


def chance_of_recall(k: int, pool: int, true_counts: np.ndarray) -> float:
    """Return the recall@k of guessing, in percent, exactly.

    A query with c true items misses with probability C(pool - c, k) / C(pool, k), written
    here as a product of c factors, because the binomials themselves overflow.

    Example:
        >>> chance_of_recall(1, 4, np.array([1, 2]))
        37.5
    """
    counts, queries = np.unique(true_counts, return_counts=True)
    missed = [_chance_of_missing(k, pool, int(count)) for count in counts]
    return 100 * (1 - float(np.average(missed, weights=queries)))


def chance_of_median(pool: int, true_counts: np.ndarray) -> int:
    """Return the rank within which guessing finds a true item for half of the queries."""
    low, high = 1, pool
    while low < high:
        middle = (low + high) // 2
        if chance_of_recall(middle, pool, true_counts) >= 50:
            high = middle
        else:
            low = middle + 1
    return low


def chance_of_mean(pool: int, true_counts: np.ndarray) -> float:
    """Return the mean rank of the first true item when guessing: (pool + 1) / (c + 1).

    Example:
        >>> chance_of_mean(9, np.array([1, 4]))
        3.5
    """
    return float(np.mean((pool + 1) / (true_counts + 1)))


def _chance_of_missing(k: int, pool: int, count: int) -> float:
    drawn = np.arange(count)
    return float(np.prod(np.maximum(pool - k - drawn, 0) / (pool - drawn)))
