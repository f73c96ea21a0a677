"""What guessing would score in a direction: the mean over its folds, as for the metrics."""

from collections.abc import Callable

import numpy as np

from fne.ranking.chance import chance_of_mean, chance_of_median, chance_of_recall
from fne.report.evaluation import Direction


def guessed_recall(way: Direction, k: int) -> float:
    """Return the recall@k of guessing in percent; 100 where k covers the pool."""
    return _over_folds(way, lambda pool, counts: chance_of_recall(min(k, pool), pool, counts))


def guessed_median(way: Direction) -> float:
    """Return the median rank of guessing."""
    return _over_folds(way, chance_of_median)


def guessed_mean(way: Direction) -> float:
    """Return the mean rank of guessing."""
    return _over_folds(way, chance_of_mean)


def _over_folds(way: Direction, chance: Callable[[int, np.ndarray], float]) -> float:
    pools = np.bincount(way.pool_folds)  # (folds,)
    return float(
        np.mean([chance(int(pool), way.true_counts[way.folds == fold]) for fold, pool in enumerate(pools)])
    )
