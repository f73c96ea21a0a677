"""How sure a metric is: percentile bootstrap over images.

An image and its captions are drawn together, with replacement, because the captions of
one image are not independent; ranks are kept as they are. Both directions see the same
draws, and so do models that are compared (`fne.paper.comparison`). In a protocol with folds,
every fold draws from its own images. Draws depend on nothing but the seed and the folds.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

SAMPLES = 1000
SEED = 0
LEVEL = 0.95
RSUM = "rsum"
_AT_ONCE = 100  # samples, so that memory stays small

Interval = tuple[float, float]
Values = dict[str, np.ndarray]  # "image_to_text.R@1": (samples)


@dataclass(frozen=True)
class Ranked:
    """The ranks of an evaluation, as `ranks.h5` keeps them."""

    image_ranks: np.ndarray  # (images)
    caption_ranks: np.ndarray  # (captions)
    caption_image: np.ndarray  # (captions): the position of each caption's image
    folds: np.ndarray  # (images): the number of each image's fold, from 0


def intervals(
    ranked: Ranked, recalls: Sequence[int], samples: int = SAMPLES, seed: int = SEED
) -> dict[str, Interval]:
    """Return the 95 % interval of every metric, by names such as `image_to_text.R@1` and `rsum`."""
    drawn = _drawn(ranked, recalls, samples, seed)
    return {name: _percentiles(values) for name, values in drawn.items()}


def draws(folds: np.ndarray, samples: int, seed: int) -> Iterator[np.ndarray]:
    """Yield how often each sample draws each image (some samples, images)."""
    generator = np.random.default_rng(seed)
    members = [np.flatnonzero(folds == fold) for fold in np.unique(folds)]
    for start in range(0, samples, _AT_ONCE):
        count = min(_AT_ONCE, samples - start)
        times = np.zeros((count, len(folds)))
        for images in members:
            chosen = generator.integers(len(images), size=(count, len(images)))
            flat = (chosen + len(images) * np.arange(count)[:, None]).ravel()
            times[:, images] = np.bincount(flat, minlength=count * len(images)).reshape(count, -1)
        yield times


def metrics_of_draws(ranked: Ranked, times: np.ndarray, recalls: Sequence[int]) -> Values:
    """Return every metric for each sample, given how often it draws each image (samples, images)."""
    directions = {
        "image_to_text": (ranked.image_ranks, np.arange(len(ranked.image_ranks))),
        "text_to_image": (ranked.caption_ranks, ranked.caption_image),
    }
    found: Values = {}
    for direction, (ranks, images) in directions.items():
        folds = ranked.folds[images]
        by_fold = [
            _summaries(ranks[folds == fold], images[folds == fold], times, recalls)
            for fold in np.unique(folds)
        ]
        for name in by_fold[0]:
            found[f"{direction}.{name}"] = np.mean([fold[name] for fold in by_fold], axis=0)
    found[RSUM] = np.sum([values for name, values in found.items() if ".R@" in name], axis=0)
    return found


def _drawn(ranked: Ranked, recalls: Sequence[int], samples: int, seed: int) -> Values:
    parts = [metrics_of_draws(ranked, times, recalls) for times in draws(ranked.folds, samples, seed)]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _summaries(ranks: np.ndarray, images: np.ndarray, times: np.ndarray, recalls: Sequence[int]) -> Values:
    """Return what `fne.ranking.metrics.summarize` would say about the queries of each sample."""
    queries = times @ np.bincount(images, minlength=times.shape[1])
    found: Values = {}
    for k in recalls:
        hits = np.bincount(images, weights=ranks <= k, minlength=times.shape[1])
        found[f"R@{k}"] = 100 * (times @ hits) / queries
    found["median_rank"] = _medians(ranks, images, times)
    found["mean_rank"] = times @ np.bincount(images, weights=ranks, minlength=times.shape[1]) / queries
    return found


def _medians(ranks: np.ndarray, images: np.ndarray, times: np.ndarray) -> np.ndarray:
    ascending = np.argsort(ranks, kind="stable")
    reached = np.cumsum(times[:, images[ascending]], axis=1)  # (samples, queries)
    queries = reached[:, -1:]
    lower = ranks[ascending][(reached <= (queries - 1) // 2).sum(axis=1)]
    upper = ranks[ascending][(reached <= queries // 2).sum(axis=1)]
    medians: np.ndarray = np.floor((lower + upper) / 2 - 1) + 1
    return medians


def _percentiles(values: np.ndarray) -> Interval:
    low, high = np.percentile(values, [50 * (1 - LEVEL), 50 * (1 + LEVEL)])
    return float(low), float(high)
