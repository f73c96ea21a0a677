"""Recall@k, median and mean rank: of a ranking, and expected by chance.

A recall means little without its chance level: 10 % is poor among 10 images and excellent among 5,000. The
`chance_of_*` functions take the size of the `pool` and `true_counts`, the number of true items per query.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

RECALLS = (1, 5, 10)
# The paper counts a run as started when the sum of its six recalls is above this.
STARTED = 10.0
# With few images chance alone reaches that.
TIMES_CHANCE = 1.5
# Where chance reaches this fraction of the highest sum of recalls, a figure says little (about 25 images).
SAYS_LITTLE = 0.2

Metrics = dict[str, float]


def summarize(ranks: np.ndarray, recalls: Sequence[int] = RECALLS) -> Metrics:
    """Return recalls in percent, and the median and the mean of 1-based ranks.

    The median is rounded as in published code: the floor of the median of 0-based ranks, plus one.

    Example:
        >>> summarize(np.array([1, 2, 7, 30]))
        {'R@1': 25.0, 'R@5': 50.0, 'R@10': 75.0, 'median_rank': 4.0, 'mean_rank': 10.0}
    """
    percentages = {f"R@{k}": 100 * float(np.mean(ranks <= k)) for k in recalls}
    median = float(np.floor(np.median(ranks - 1)) + 1)
    return percentages | {"median_rank": median, "mean_rank": float(np.mean(ranks))}


def mean_over_folds(folds: Sequence[Metrics]) -> Metrics:
    """Return the mean of each metric over the folds of a protocol.

    Example:
        >>> mean_over_folds([{"R@1": 20.0}, {"R@1": 30.0}])
        {'R@1': 25.0}
    """
    return {name: float(np.mean([fold[name] for fold in folds])) for name in folds[0]}


def sum_of_recalls(*directions: Mapping[str, float]) -> float:
    """Return rsum: the sum of all recalls of both directions; with R@1, R@5 and R@10, at most 600."""
    return sum(value for metrics in directions for name, value in metrics.items() if name.startswith("R@"))


def retrieval_values(image_ranks: np.ndarray, caption_ranks: np.ndarray) -> Metrics:
    """Return the validation scores of a ranking by name: rsum first, then the metrics of both directions."""
    directions = {"image_to_text": summarize(image_ranks), "text_to_image": summarize(caption_ranks)}
    values = {"rsum": sum_of_recalls(*directions.values())}
    for direction, metrics in directions.items():
        values |= {f"{direction}/{name}": value for name, value in metrics.items()}
    return values


def chance_of_recall(k: int, pool: int, true_counts: np.ndarray) -> float:
    """Return the exact recall@k by chance, in percent.

    A query with c true items misses with probability C(pool - c, k) / C(pool, k). It is computed
    as a product of c factors, because the binomial coefficients overflow.

    Example:
        >>> chance_of_recall(1, 4, np.array([1, 2]))
        37.5
    """
    counts, queries = np.unique(true_counts, return_counts=True)
    missed = [_chance_of_missing(k, pool, int(count)) for count in counts]
    return 100 * (1 - float(np.average(missed, weights=queries)))


def chance_of_rsum(captions_per_image: np.ndarray, recalls: Sequence[int] = RECALLS) -> float:
    """Return the sum of recalls by chance, in both directions.

    Example:
        >>> round(chance_of_rsum(np.full(1000, 5)), 1), round(chance_of_rsum(np.full(4, 5)), 1)
        (3.2, 429.0)
    """
    images, captions = len(captions_per_image), int(captions_per_image.sum())
    return sum(
        chance_of_recall(k, captions, captions_per_image) + chance_of_recall(k, images, np.ones(1, dtype=int))
        for k in recalls
    )


def validation_metrics(values: Mapping[str, float], captions_per_image: np.ndarray) -> dict[str, Any]:
    """Return the values of a validation, of `retrieval_values`, as a metrics file has them."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        direction, _, metric = name.partition("/")
        if metric:
            found.setdefault(direction, {})[metric] = value
    return found | {
        "rsum": next(iter(values.values())),
        "chance": chance_of_rsum(captions_per_image),
        "images": len(captions_per_image),
        "captions": int(captions_per_image.sum()),
    }


def small_split_warning(images: int, chance: float, recalls: int) -> str | None:
    """Return a warning if a split is so small that its sum of recalls says little, or None.

    `chance` is the sum of recalls by chance, and `recalls` how many each direction has.

    Example:
        >>> print(small_split_warning(4, 429.0, 3)[:44])
        among 4 images chance scores 429.0 of 600, s
        >>> small_split_warning(50, 62.2, 3)
    """
    highest = 200 * recalls
    if chance < SAYS_LITTLE * highest:
        return None
    return (
        f"among {images} images chance scores {chance:.1f} of {highest}, so the sum of recalls says "
        "little; score 100 images or more"
    )


def chosen_by(name: str) -> str | None:
    """Return a warning if the split in a name, such as `val_full`, chose the epoch, or None.

    Example:
        >>> print(chosen_by("val_full"))
        these images chose the epoch, so the figures are the best of many and too high; report a test split
        >>> chosen_by("test_full")
    """
    if name.partition("_")[0] != "val":
        return None
    return (
        "these images chose the epoch, so the figures are the best of many and too high; report a test split"
    )


def has_started(rsum: float, captions_per_image: np.ndarray) -> bool:
    """Return whether the sum of the six recalls is clearly above chance."""
    return rsum > max(STARTED, TIMES_CHANCE * chance_of_rsum(captions_per_image))


def chance_of_median(pool: int, true_counts: np.ndarray) -> int:
    """Return the rank within which chance finds a true item for half of the queries."""
    low, high = 1, pool
    while low < high:
        middle = (low + high) // 2
        if chance_of_recall(middle, pool, true_counts) >= 50:
            high = middle
        else:
            low = middle + 1
    return low


def chance_of_mean(pool: int, true_counts: np.ndarray) -> float:
    """Return the expected rank of the first true item by chance: (pool + 1) / (c + 1).

    Example:
        >>> chance_of_mean(9, np.array([1, 4]))
        3.5
    """
    return float(np.mean((pool + 1) / (true_counts + 1)))


def _chance_of_missing(k: int, pool: int, count: int) -> float:
    drawn = np.arange(count)
    return float(np.prod(np.maximum(pool - k - drawn, 0) / (pool - drawn)))
