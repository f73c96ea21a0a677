"""Confidence intervals of retrieval metrics, by a percentile bootstrap over images.

An image is drawn together with its captions, with replacement, because the captions of
one image are not independent. Ranks are not recomputed. Both directions use the same
draws, and so do two models that are compared (`fne.papers.comparison`). In a protocol with
folds, each fold draws from its own images. The draws depend only on the seed and the folds.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

SAMPLES = 1000
SEED = 0
LEVEL = 0.95
RSUM = "rsum"
_CHUNK = 100  # samples per chunk, which bounds the memory

Interval = tuple[float, float]
Values = dict[str, np.ndarray]  # "image_to_text.R@1": (samples)


@dataclass(frozen=True)
class Ranked:
    """The ranks of an evaluation, as stored in `ranks.h5`."""

    image_ranks: np.ndarray  # (images)
    caption_ranks: np.ndarray  # (captions)
    caption_image: np.ndarray  # (captions): the position of each caption's image
    folds: np.ndarray  # (images): the index of each image's fold, from 0


def intervals(
    ranked: Ranked, recalls: Sequence[int], samples: int = SAMPLES, seed: int = SEED
) -> dict[str, Interval]:
    """Return the 95 % interval of each metric, keyed by names such as `image_to_text.R@1` and `rsum`."""
    chunks = [metrics_of_draws(ranked, times, recalls) for times in draws(ranked.folds, samples, seed)]
    return {name: percentiles(np.concatenate([chunk[name] for chunk in chunks])) for name in chunks[0]}


def as_bounds(interval: Interval) -> dict[str, float]:
    """Return an interval as files have it: DVC shows numbers with names, and no lists.

    Example:
        >>> as_bounds((1.0, 2.0))
        {'low': 1.0, 'high': 2.0}
    """
    low, high = interval
    return {"low": low, "high": high}


def draws(folds: np.ndarray, samples: int, seed: int) -> Iterator[np.ndarray]:
    """Yield, in chunks of samples, how often each sample draws each image (samples, images)."""
    generator = np.random.default_rng(seed)
    members = [np.flatnonzero(folds == fold) for fold in np.unique(folds)]
    for start in range(0, samples, _CHUNK):
        count = min(_CHUNK, samples - start)
        times = np.zeros((count, len(folds)))
        for images in members:
            chosen = generator.integers(len(images), size=(count, len(images)))
            flat = (chosen + len(images) * np.arange(count)[:, None]).ravel()
            times[:, images] = np.bincount(flat, minlength=count * len(images)).reshape(count, -1)
        yield times


def metrics_of_draws(ranked: Ranked, times: np.ndarray, recalls: Sequence[int]) -> Values:
    """Return each metric per sample, given how often a sample draws each image (samples, images)."""
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


def _summaries(ranks: np.ndarray, images: np.ndarray, times: np.ndarray, recalls: Sequence[int]) -> Values:
    """Return what `fne.metrics.recall.summarize` would return for the queries of each sample."""
    queries = times @ np.bincount(images, minlength=times.shape[1])
    found: Values = {}
    for k in recalls:
        hits = np.bincount(images, weights=ranks <= k, minlength=times.shape[1])
        found[f"R@{k}"] = 100 * (times @ hits) / queries
    found["median_rank"] = _medians(ranks, images, times)
    found["mean_rank"] = times @ np.bincount(images, weights=ranks, minlength=times.shape[1]) / queries
    return found


def _medians(ranks: np.ndarray, images: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Return the median rank of each sample, rounded as in `fne.metrics.recall.summarize`."""
    ascending = np.argsort(ranks, kind="stable")
    counts = np.cumsum(times[:, images[ascending]], axis=1)  # (samples, queries)
    queries = counts[:, -1:]
    lower = ranks[ascending][(counts <= (queries - 1) // 2).sum(axis=1)]
    upper = ranks[ascending][(counts <= queries // 2).sum(axis=1)]
    medians: np.ndarray = np.floor((lower + upper) / 2 - 1) + 1
    return medians


def percentiles(values: np.ndarray) -> Interval:
    """Return the bounds of the central 95 % of some values."""
    low, high = np.percentile(values, [50 * (1 - LEVEL), 50 * (1 + LEVEL)])
    return float(low), float(high)
