"""Confidence intervals of all metrics, by a percentile bootstrap over images.

An image is drawn together with its captions, with replacement, because the captions of one image are not
independent. Ranks are not recomputed. Both directions use the same draws, and so do two models that are
compared. Each fold draws from its own images. The draws depend only on the seed and the folds.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fne.core.errors import InputError
from fne.evaluation.metrics.caption_metrics import BLEU_NAMES, Corpus, Sentences, bleu_of_counts
from fne.evaluation.metrics.tag_metrics import (
    LabelCounts,
    average_precision_of_draws,
    averages_of_draws,
    check_scores,
)

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
    return _bootstrap(lambda times: metrics_of_draws(ranked, times, recalls), ranked.folds, samples, seed)


def label_intervals(
    predicted: np.ndarray, true: np.ndarray, samples: int = SAMPLES, seed: int = SEED
) -> dict[str, Interval]:
    """Return 95 % intervals of the averages of `label_metrics`: a bootstrap over images.

    A sample may lack a label altogether; its 0/0 count as 0, as everywhere here.
    """
    counts = LabelCounts.of(predicted, true)
    return _bootstrap(lambda times: averages_of_draws(counts, times), _one_fold(len(true)), samples, seed)


def map_interval(scores: np.ndarray, true: np.ndarray, samples: int = SAMPLES, seed: int = SEED) -> Interval:
    """Return the bootstrapped 95 % interval of mAP; labels that a sample lacks are left out of its mean."""
    truth = LabelCounts.of(true, true).true
    check_scores(scores, truth)
    if not truth.any():
        raise InputError("labels: no image has a label, and mAP is not defined; score images with labels")
    means = []
    for times in draws(_one_fold(len(truth)), samples, seed):
        total, present = np.zeros(len(times)), np.zeros(len(times))
        for label in np.flatnonzero(truth.any(axis=0)):
            values = average_precision_of_draws(scores[:, label], truth[:, label], times)
            there = ~np.isnan(values)
            total[there] += values[there]
            present += there
        # A sample without any label says nothing about mAP.
        means.append(total[present > 0] / present[present > 0])
    return percentiles(np.concatenate(means))


def caption_intervals(
    candidates: Sentences, references: Sentences, samples: int = SAMPLES, seed: int = SEED
) -> dict[str, Interval]:
    """Return 95 % intervals of BLEU, ROUGE-L and CIDEr-D: a bootstrap over images.

    BLEU pools the counts of each sample. The document frequencies of CIDEr-D stay those of all images. Draws
    are those of the retrieval metrics, so captioners of the same images are compared on the same samples.
    """
    corpus = Corpus.of(candidates, references)
    means = {"ROUGE-L": corpus.rouge_values}
    if len(corpus.ids) > 1:
        means["CIDEr-D"] = corpus.cider_values

    def scores(times: np.ndarray) -> Values:
        bleu = zip(BLEU_NAMES, bleu_of_counts(times @ corpus.bleu_counts).T, strict=True)
        return {**dict(bleu), **{name: times @ values / len(values) for name, values in means.items()}}

    return _bootstrap(scores, _one_fold(len(corpus.ids)), samples, seed)


def mean_interval(values: np.ndarray, samples: int = SAMPLES, seed: int = SEED) -> Interval:
    """Return the 95 % interval of the mean of a value per image."""
    folds = _one_fold(len(values))
    return _bootstrap(lambda times: {"mean": times @ values / len(values)}, folds, samples, seed)["mean"]


def _bootstrap(
    metrics: Callable[[np.ndarray], Values], folds: np.ndarray, samples: int, seed: int
) -> dict[str, Interval]:
    """Return the interval of each of the metrics of samples, given how often these draw each image."""
    parts = [metrics(times) for times in draws(folds, samples, seed)]
    return {name: percentiles(np.concatenate([part[name] for part in parts])) for name in parts[0]}


def _one_fold(images: int) -> np.ndarray:
    return np.zeros(images, dtype=int)


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
    """Return what `fne.evaluation.metrics.recall.summarize` would return for the queries of each sample."""
    queries = times @ np.bincount(images, minlength=times.shape[1])
    found: Values = {}
    for k in recalls:
        hits = np.bincount(images, weights=ranks <= k, minlength=times.shape[1])
        found[f"R@{k}"] = 100 * (times @ hits) / queries
    found["median_rank"] = _medians(ranks, images, times)
    found["mean_rank"] = times @ np.bincount(images, weights=ranks, minlength=times.shape[1]) / queries
    return found


def _medians(ranks: np.ndarray, images: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Return the median rank of each sample, rounded as in `fne.evaluation.metrics.recall.summarize`."""
    ascending = np.argsort(ranks, kind="stable")
    counts = np.cumsum(times[:, images[ascending]], axis=1)  # (samples, queries)
    queries = counts[:, -1:]
    lower = ranks[ascending][(counts <= (queries - 1) // 2).sum(axis=1)]
    upper = ranks[ascending][(counts <= queries // 2).sum(axis=1)]
    medians: np.ndarray = np.floor((lower + upper) / 2 - 1) + 1
    return medians


def percentiles(values: np.ndarray, comparisons: int = 1) -> Interval:
    """Return the bounds of the central 95 % of some values; of more, if there are several comparisons.

    Example:
        >>> np.round([percentiles(np.arange(1001.0)), percentiles(np.arange(1001.0), 5)], 6).tolist()
        [[25.0, 975.0], [5.0, 995.0]]
    """
    outside = 50 * (1 - LEVEL) / comparisons
    low, high = np.percentile(values, [outside, 100 - outside])
    return float(low), float(high)
