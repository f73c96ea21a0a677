"""Agreement of scores with the grades that people gave to pairs of an image and a caption.

Spearman's correlation, Kendall's tau-b and tau-c (Stuart's), and the AUC of acceptable pairs: the probability
that an acceptable pair scores higher than another one. Ties count as in scipy. Within an image, a correlation
is the mean over the images whose pairs have different grades.

Intervals are a bootstrap over images: an image is drawn with all its pairs, so a pair and its copy are tied.
Sides that are compared have the same samples.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from fne.evaluation.intervals import SAMPLES, SEED, draws, percentiles

NAMES = ("spearman", "tau_b", "tau_c", "auc")
THREADS = 2

Samples = dict[str, np.ndarray]  # the value of all images, and then of each sample, by name


@dataclass(frozen=True)
class Sorted:
    """Pairs in the order of their scores, as `fne.evaluation.agreement_kernels` takes them."""

    owners: np.ndarray
    levels: np.ndarray
    ends: np.ndarray
    count: int
    acceptable: int

    @classmethod
    def of(cls, scores: np.ndarray, grades: np.ndarray, owners: np.ndarray, acceptable: float) -> "Sorted":
        """Sort pairs by their scores (pairs)."""
        distinct, levels = np.unique(grades, return_inverse=True)
        order = np.argsort(scores, kind="stable")
        ascending = scores[order]
        ends = np.append(ascending[1:] != ascending[:-1], True)
        lowest = int(np.searchsorted(distinct, acceptable))
        return cls(owners[order], levels.reshape(-1)[order], ends, len(distinct), lowest)

    def figures(self, times: np.ndarray) -> np.ndarray:
        """Return the figures of each sample (samples, names)."""
        from fne.evaluation.agreement_kernels import figures  # numba: slow to import

        found: np.ndarray = figures(times, self.owners, self.levels, self.ends, self.count, self.acceptable)
        return found


def agreement(
    scores: np.ndarray,
    grades: np.ndarray,
    owners: np.ndarray,
    acceptable: float,
    samples: int = SAMPLES,
    seed: int = SEED,
) -> Samples:
    """Return each figure of all pairs and of each sample (1 + samples), by name.

    Args:
        scores: what a model gives each pair (pairs), higher for a better one.
        grades: what people give it (pairs).
        owners: the image of each pair, as its place among `images` (pairs).
        acceptable: the grade from which a pair is acceptable.
    """
    images = int(owners.max()) + 1
    pairs = Sorted.of(scores, grades, owners, acceptable)
    with ThreadPoolExecutor(THREADS) as pool:
        parts = list(pool.map(pairs.figures, _all_and_draws(images, samples, seed)))
    return dict(zip(NAMES, np.concatenate(parts).T, strict=True))


def agreement_within(
    scores: np.ndarray, grades: np.ndarray, owners: np.ndarray, samples: int = SAMPLES, seed: int = SEED
) -> Samples:
    """Return the means over images of the correlations of their own pairs, as `agreement` does."""
    images = int(owners.max()) + 1
    order = np.argsort(owners, kind="stable")
    bounds = np.searchsorted(owners[order], np.arange(images + 1))
    values = np.full((images, len(NAMES)), np.nan)
    for image in range(images):
        own = order[bounds[image] : bounds[image + 1]]
        if len(own) > 1:
            nothing = np.zeros(len(own), dtype=np.int64)
            values[image] = Sorted.of(scores[own], grades[own], nothing, np.inf).figures(np.ones((1, 1)))[0]
    defined = ~np.isnan(values[:, 0])
    known = np.where(defined[:, None], values, 0)
    parts = [(times @ known, times @ defined) for times in _all_and_draws(images, samples, seed)]
    sums, counts = (np.concatenate(each) for each in zip(*parts, strict=True))
    with np.errstate(invalid="ignore"):
        means = sums / counts[:, None]
    return {name: means[:, place] for place, name in enumerate(NAMES[:-1])}


def means_of_queries(
    values: Mapping[str, np.ndarray], owners: np.ndarray, samples: int = SAMPLES, seed: int = SEED
) -> Samples:
    """Return the mean of each figure over queries (queries), whose images are drawn, as `agreement` does."""
    images = int(owners.max()) + 1
    counts = np.bincount(owners, minlength=images)
    parts: dict[str, list[np.ndarray]] = {name: [] for name in values}
    for times in _all_and_draws(images, samples, seed):
        for name, each in values.items():
            parts[name].append(times @ np.bincount(owners, weights=each, minlength=images) / (times @ counts))
    return {name: np.concatenate(each) for name, each in parts.items()}


def judges_agreement(judges: np.ndarray) -> dict[str, float]:
    """Return how each judge (pairs, judges) agrees with the mean of the others, as the mean over judges."""
    nothing = np.zeros(len(judges), dtype=np.int64)
    found = []
    for judge in range(judges.shape[1]):
        others = np.delete(judges, judge, axis=1).mean(axis=1)
        pairs = Sorted.of(judges[:, judge], others.round(9), nothing, np.inf)
        found.append(pairs.figures(np.ones((1, 1)))[0, :-1])
    return dict(zip(NAMES[:-1], np.mean(found, axis=0).tolist(), strict=True))


def summarized(samples: np.ndarray) -> dict[str, float] | None:
    """Return `value`, `low` and `high` of a figure; None if it is not defined.

    Example:
        >>> summarized(np.array([0.5, 0.25, 0.75]))
        {'value': 0.5, 'low': 0.2625, 'high': 0.7375}
    """
    drawn = samples[1:][~np.isnan(samples[1:])]
    if np.isnan(samples[0]) or not len(drawn):
        return None
    low, high = percentiles(drawn)
    return {"value": float(samples[0]), "low": round(low, 9), "high": round(high, 9)}


def set_figures(ranks: Sequence[np.ndarray], recalls: Sequence[int]) -> dict[str, np.ndarray]:
    """Return mAP@R, R-Precision and R@K of each query (queries), given the ranks of its R right answers.

    Example:
        >>> found = set_figures([np.array([1, 3, 7])], [1])
        >>> {name: values.round(3).tolist() for name, values in found.items()}
        {'map_at_r': [0.556], 'r_precision': [0.667], 'R@1': [1.0]}
    """
    averages, precisions, first = [], [], []
    for each in ranks:
        own = np.sort(each)
        inside = own[own <= len(own)]
        averages.append(float((np.arange(1, len(inside) + 1) / inside).sum() / len(own)))
        precisions.append(len(inside) / len(own))
        first.append(own[0])
    best = np.array(first)
    hits = {f"R@{k}": (best <= k).astype(float) for k in recalls}
    return {"map_at_r": np.array(averages), "r_precision": np.array(precisions), **hits}


def _all_and_draws(images: int, samples: int, seed: int) -> list[np.ndarray]:
    return [np.ones((1, images)), *draws(np.zeros(images, dtype=int), samples, seed)]
