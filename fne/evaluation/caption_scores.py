"""Scores of a captioner beside baselines that need no captioner.

A captioner must beat all baselines on the same images and features, or it has learned nothing. So every
score is shown beside three of them: one sentence for all images, a caption of the nearest training image,
and the consensus of the captions of the nearest ones. The best of them is what a captioner is compared with.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fne.evaluation.caption_baselines import consensus_captions, constant_caption, nearest_captions
from fne.evaluation.intervals import SAMPLES, SEED, caption_intervals, draws, percentiles
from fne.evaluation.metrics.caption_metrics import cider_d, collapse_warning, summarize

CAPTIONER, CONSTANT, NEAREST, CONSENSUS = "captioner", "constant", "nearest", "consensus"
BASELINES = (CONSENSUS, NEAREST, CONSTANT)
USUAL_REFERENCES = 5  # human captions per image, of published figures


@dataclass(frozen=True)
class CaptionScores:
    """The scores of a captioner and of the floors, on the same images.

    Attributes:
        name: of the split and the protocol.
        references: the human captions of each image.
        candidates: of the captioner and of each floor, the caption of each image.
        metrics: of the captioner and of each floor.
        intervals: the same keys, 95 % intervals over images.
        above: by how much the captioner's CIDEr-D is above that of the best baseline, and its interval.
        per_image: the CIDEr-D of the captioner for each image; empty for a single image.
        warning: what is wrong with the captioner, if anything.
        notes: remarks about the figures, for the reader.
    """

    name: str
    references: dict[str, list[str]]
    candidates: dict[str, dict[str, str]]
    metrics: dict[str, dict[str, float]]
    intervals: dict[str, dict[str, tuple[float, float]]]
    above: tuple[float, float, float] | None
    per_image: dict[str, float]
    warning: str | None
    notes: list[str] = field(default_factory=list)

    @property
    def best_baseline(self) -> str:
        """The baseline with the highest CIDEr-D, of several images."""
        return best_baseline(self.metrics)

    @property
    def beats_floors(self) -> bool | None:
        """Whether the captioner is clearly above the best baseline; None for one image."""
        return None if self.above is None else self.above[1] > 0


def best_baseline(metrics: Mapping[str, Mapping[str, float]]) -> str:
    """Return the baseline with the highest CIDEr-D.

    Example:
        >>> scores = {"constant": 0.2, "nearest": 0.9, "consensus": 0.7}
        >>> best_baseline({name: {"CIDEr-D": score} for name, score in scores.items()})
        'nearest'
    """
    return max(BASELINES, key=lambda name: metrics[name]["CIDEr-D"])


def score_captions(
    name: str,
    candidates: Mapping[str, str],
    references: Mapping[str, Sequence[str]],
    training: Mapping[str, Sequence[str]],
    nearest: np.ndarray,
) -> CaptionScores:
    """Score the captions of images, and those of the floors.

    Args:
        name: of the split and the protocol.
        candidates: the caption of each image.
        references: the human captions of each image, cut as `reference_sentences` does.
        training: the captions of each training image, cut alike.
        nearest: the positions of the nearest training images, the nearest first (images, neighbors).
    """
    captions = list(training.values())
    ids = list(candidates)
    constant = constant_caption(captions)
    written = {
        CAPTIONER: dict(candidates),
        CONSTANT: dict.fromkeys(ids, constant),
        NEAREST: dict(zip(ids, nearest_captions(nearest, captions), strict=True)),
        CONSENSUS: dict(zip(ids, consensus_captions(nearest, captions), strict=True)),
    }
    known = {sentence for own in captions for sentence in own}
    own_references = {image: list(references[image]) for image in ids}
    several = len(ids) > 1
    values = {each: cider_d(written[each], own_references).per_image for each in written} if several else {}
    warning = collapse_warning(candidates)
    metrics = {each: summarize(own, own_references, known) for each, own in written.items()}
    return CaptionScores(
        name,
        own_references,
        written,
        metrics,
        {each: caption_intervals(own, own_references) for each, own in written.items()},
        mean_with_interval(values[CAPTIONER] - values[best_baseline(metrics)]) if several else None,
        dict(zip(ids, values[CAPTIONER].tolist(), strict=True)) if several else {},
        warning,
        _notes(own_references),
    )


def mean_with_interval(values: np.ndarray) -> tuple[float, float, float]:
    """Return the mean of a value per image, and its 95 % interval by a bootstrap over images."""
    folds = np.zeros(len(values), dtype=int)
    means = [times @ values / len(values) for times in draws(folds, SAMPLES, SEED)]
    return (float(values.mean()), *percentiles(np.concatenate(means)))


def _notes(references: Mapping[str, Sequence[str]]) -> list[str]:
    counts = {len(each) for each in references.values()}
    notes = []
    if len(references) == 1:
        notes.append("CIDEr-D of a single image is 0 by definition and is left out.")
    if min(counts) < USUAL_REFERENCES:
        fewest = f"{min(counts)} to {max(counts)}" if len(counts) > 1 else str(min(counts))
        notes.append(
            f"Images have {fewest} human captions; figures cannot be compared with those of five captions."
        )
    return notes
