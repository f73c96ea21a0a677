"""What the field reports about ranks."""

from collections.abc import Mapping, Sequence

import numpy as np

RECALLS = (1, 5, 10)

Metrics = dict[str, float]


def summarize(ranks: np.ndarray, recalls: Sequence[int] = RECALLS) -> Metrics:
    """Return recalls in percent, median and mean of 1-based ranks.

    The median is that of the field's published codes: the floor of the median of 0-based
    ranks, plus one.

    Example:
        >>> summarize(np.array([1, 2, 7, 30]))
        {'R@1': 25.0, 'R@5': 50.0, 'R@10': 75.0, 'median_rank': 4.0, 'mean_rank': 10.0}
    """
    shares = {f"R@{k}": 100 * float(np.mean(ranks <= k)) for k in recalls}
    median = float(np.floor(np.median(ranks - 1)) + 1)
    return shares | {"median_rank": median, "mean_rank": float(np.mean(ranks))}


def mean_over_folds(folds: Sequence[Metrics]) -> Metrics:
    """Return the mean of each metric over the folds of a protocol.

    Example:
        >>> mean_over_folds([{"R@1": 20.0}, {"R@1": 30.0}])
        {'R@1': 25.0}
    """
    return {name: float(np.mean([fold[name] for fold in folds])) for name in folds[0]}


def sum_of_recalls(*directions: Mapping[str, float]) -> float:
    """Return rsum: the sum of all recalls of both directions; of R@1, R@5 and R@10, 600 at best."""
    return sum(value for metrics in directions for name, value in metrics.items() if name.startswith("R@"))
