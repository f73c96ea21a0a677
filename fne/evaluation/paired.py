"""Paired bootstrap comparisons of retrieval results: one implementation for every command that compares.

Both sides have the same samples of test images, because an image that is hard for one model is usually hard
for the other (see `fne.evaluation.intervals`). With at least `ENOUGH_SEEDS` seeds on both sides, seeds are
resampled too. For several comparisons together, intervals have the level of Bonferroni's correction and p
values are Holm's, so all verdicts together are wrong with a probability of at most 5 %.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fne.evaluation.intervals import RSUM, Interval, Ranked, draws, percentiles
from fne.evaluation.metrics.recall import RECALLS

ENOUGH_SEEDS = 5
SAMPLES = 2000
SEED = 0
SEEDS_UNKNOWN = "seed variance unknown"
NO_DIFFERENCE = "no difference shown"


@dataclass(frozen=True)
class Difference:
    """A metric of both sides with 95 % intervals, that of B - A, and the verdict."""

    metric: str
    a: float
    b: float
    low: float
    high: float
    p: float  # two-sided p value of the bootstrap
    verdict: str
    a_interval: Interval = (math.nan, math.nan)
    b_interval: Interval = (math.nan, math.nan)


def difference(
    metric: str, a: float, b: float, drawn: np.ndarray, enough: bool, comparisons: int = 1
) -> Difference:
    """Return a metric of both sides and what its samples `drawn` (2, samples) say of the difference.

    Of ranks, lower ones are better. `enough`: whether there are enough training runs to call a side better.
    """
    sampled = (drawn[1] - drawn[0]).round(9)  # ignore differences in the last bits of means
    low, high = percentiles(sampled, comparisons)
    # Adding one keeps p above 0, which a finite number of samples cannot show.
    smaller = int(min(np.count_nonzero(sampled <= 0), np.count_nonzero(sampled >= 0)))
    tail = (1 + smaller) / (1 + len(sampled))
    if not enough:
        verdict = SEEDS_UNKNOWN
    elif low <= 0 <= high:
        verdict = NO_DIFFERENCE
    else:
        verdict = "B is better" if (low > 0) != metric.endswith("_rank") else "A is better"
    return Difference(
        metric, a, b, low, high, min(1.0, 2 * tail), verdict, percentiles(drawn[0]), percentiles(drawn[1])
    )


def holm(values: Sequence[float]) -> list[float]:
    """Return p values that are corrected for their number, by Holm's method.

    Example:
        >>> [round(each, 3) for each in holm([0.01, 0.04, 0.03])]
        [0.03, 0.06, 0.06]
    """
    corrected, largest = [0.0] * len(values), 0.0
    for place, position in enumerate(np.argsort(values, kind="stable")):
        largest = max(largest, min(1.0, (len(values) - place) * values[position]))
        corrected[int(position)] = largest
    return corrected


def choose_seeds(seeds: int, samples: int, generator: np.random.Generator | None) -> np.ndarray:
    """Return which seeds each sample averages (seeds, samples): all or, with a generator, resampled ones."""
    shape = (seeds, samples)
    return generator.integers(seeds, size=shape) if generator else np.indices(shape)[0]


def mean_over_seeds(values: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Return values (seeds, samples) averaged over the seeds of `choose_seeds`."""
    averaged: np.ndarray = np.take_along_axis(values, chosen, axis=0).mean(axis=0)
    return averaged


def rsum_samples(
    sides: Sequence[Sequence[Ranked]], samples: int = SAMPLES, seed: int = SEED, same_seeds: bool = False
) -> list[tuple[float, np.ndarray]]:
    """Return the sum of recalls of each side, and its values in all samples (samples).

    All sides have the same samples, so any two of them can be compared. Seeds are resampled if all sides
    have enough. A sum of recalls is linear in the hits of each image, so one product serves all sides.

    Args:
        sides: the ranks of each seed of each side, all of the same test images.
        same_seeds: whether all sides were trained with the same seeds, so that these are paired too.
    """
    first = sides[0][0]
    folds = np.unique(first.folds)
    flat = [ranked for side in sides for ranked in side]
    hits = [np.stack([_hits(ranked)[way] for ranked in flat], axis=1) for way in (0, 1)]  # (images, runs)
    queries = np.ones(len(first.folds)), np.bincount(first.caption_image, minlength=len(first.folds))

    def sums(times: np.ndarray) -> np.ndarray:
        parts = []
        for fold in folds:
            own = first.folds == fold
            drawn = times[:, own]
            parts.append(
                sum(100 * (drawn @ hits[way][own]) / (drawn @ queries[way][own])[:, None] for way in (0, 1))
            )
        averaged: np.ndarray = np.mean(parts, axis=0)
        return averaged.T  # (runs, samples)

    whole = sums(np.ones((1, len(first.folds))))[:, 0]
    chunks = np.concatenate([sums(times) for times in draws(first.folds, samples, seed)], axis=1)
    enough = min(len(side) for side in sides) >= ENOUGH_SEEDS
    found, start = [], 0
    for side in sides:
        own = slice(start, start + len(side))
        generator = np.random.default_rng((seed, 1 if same_seeds else start + 1)) if enough else None
        chosen = choose_seeds(len(side), chunks.shape[1], generator)
        found.append((float(whole[own].mean()), mean_over_seeds(chunks[own], chosen)))
        start += len(side)
    return found


def compare_rsums(
    a: tuple[float, np.ndarray], b: tuple[float, np.ndarray], enough: bool, comparisons: int = 1
) -> Difference:
    """Compare two sides of `rsum_samples`."""
    return difference(RSUM, a[0], b[0], np.stack([a[1], b[1]]), enough, comparisons)


def _hits(ranked: Ranked) -> tuple[np.ndarray, np.ndarray]:
    """Return in how many of the recalls each image is a hit, and each image's captions together."""
    images = np.sum([ranked.image_ranks <= k for k in RECALLS], axis=0).astype(float)
    captions = np.sum([ranked.caption_ranks <= k for k in RECALLS], axis=0).astype(float)
    return images, np.bincount(ranked.caption_image, weights=captions, minlength=len(images))
