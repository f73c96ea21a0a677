"""What the field reports about ranks."""

import numpy as np

RECALLS = (1, 5, 10)

Metrics = dict[str, float]


def summarize(ranks: np.ndarray) -> Metrics:
    """Return recalls in percent, median and mean of 1-based ranks.

    The median is that of the field's published codes: the floor of the median of 0-based
    ranks, plus one.

    Example:
        >>> summarize(np.array([1, 2, 7, 30]))
        {'R@1': 25.0, 'R@5': 50.0, 'R@10': 75.0, 'median_rank': 4.0, 'mean_rank': 10.0}
    """
    recalls = {f"R@{k}": 100 * float(np.mean(ranks <= k)) for k in RECALLS}
    median = float(np.floor(np.median(ranks - 1)) + 1)
    return recalls | {"median_rank": median, "mean_rank": float(np.mean(ranks))}


def sum_of_recalls(*directions: Metrics) -> float:
    """Return rsum: the sum of the recalls of both directions, 600 at best."""
    return sum(metrics[f"R@{k}"] for metrics in directions for k in RECALLS)
