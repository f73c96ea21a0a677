"""The scores of written captions, beside baselines that need no captioner, and the files that hold them.

A captioner must beat all baselines on the same images and features, or it has learned nothing. So every
score is shown beside three of them: one sentence for all images, a caption of the nearest training image,
and the consensus of the captions of the nearest ones. The best of them is what a captioner is compared with.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fne.core.errors import InputError
from fne.describing.annotations import Written
from fne.describing.data import reference_sentences
from fne.describing.settings import CAPTIONER
from fne.evaluation.caption_baselines import (
    consensus_captions,
    constant_caption,
    nearest_captions,
    nearest_training_images,
)
from fne.evaluation.intervals import (
    LEVEL,
    SAMPLES,
    SEED,
    caption_intervals,
    draws,
    percentiles,
)
from fne.evaluation.metrics.caption_metrics import cider_d, collapse_warning, summarize
from fne.evaluation.metrics.meteor import find_program, meteor
from fne.evaluation.protocols import FULL, choose_folds, metrics_name
from fne.store.artifact import Lineage
from fne.store.catalog import Captioned, in_split
from fne.store.checksums import write_metrics
from fne.store.rows import Rows

CONSTANT, NEAREST, CONSENSUS = "constant", "nearest", "consensus"
BASELINES = (CONSENSUS, NEAREST, CONSTANT)
USUAL_REFERENCES = 5  # human captions per image, of published figures
ABOVE = "CIDEr-D_above_best_baseline"


@dataclass(frozen=True)
class CaptionScores:
    """The scores of a captioner and of the baselines, on the same images."""

    name: str  # of the split and the protocol
    references: dict[str, list[str]]  # the human captions of each image
    candidates: dict[str, dict[str, str]]  # of the captioner and of each baseline, the caption of each image
    metrics: dict[str, dict[str, float]]  # of the captioner and of each baseline
    intervals: dict[str, dict[str, tuple[float, float]]]  # the same keys, 95 % intervals over images
    above: tuple[float, float, float] | None  # CIDEr-D minus that of the best baseline, and its interval
    per_image: dict[str, float]  # the CIDEr-D of the captioner; empty for a single image
    warning: str | None  # what is wrong with the captioner, if anything
    notes: list[str] = field(default_factory=list)  # about the figures, for the reader

    @property
    def best_baseline(self) -> str:
        """The baseline with the highest CIDEr-D, of several images."""
        return best_baseline(self.metrics)

    @property
    def beats_baselines(self) -> bool | None:
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
    """Score the captions of images, and those of the baselines.

    Args:
        name: of the split and the protocol.
        references: the human captions of each image, cut as `reference_sentences` does, as is `training`.
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


def images_to_caption(captioned: Sequence[Captioned], rows: Rows, split: str, images: str) -> list[str]:
    """Return the ids of the images that get a caption: `all` of the catalog, or those of the `split`.

    An imported store may have rows of more or fewer images than the catalog.
    """
    scored = [record.id for record in choose_folds(FULL, captioned, split)[0]]
    rows.check_ids(scored)
    if images == "split":
        return scored
    known = set(rows.ids)
    return [record.id for record in captioned if record.id in known]


def evaluate_captions(
    written: Mapping[str, Written],
    captioned: Sequence[Captioned],
    rows: Rows,
    split: str,
    neighbors: int,
) -> CaptionScores:
    """Score the captions of a split beside the baselines, of which the consensus has some `neighbors`."""
    references = reference_sentences(choose_folds(FULL, captioned, split)[0])
    training = reference_sentences(in_split(captioned, "train"))
    candidates = {image: written[image].caption for image in references}
    nearest = nearest_training_images(rows, list(references), list(training), neighbors)
    return score_captions(metrics_name(split, FULL), candidates, references, training, nearest)


def meteor_scores(choice: str, scores: CaptionScores) -> dict[str, float] | str:
    """Return METEOR of the captioner and of each baseline, or why there is none.

    The choice is `auto` (where the program is installed), `always` or `never`.
    """
    if choice == "never":
        return "caption.meteor is never"
    program = find_program()
    if isinstance(program, str):
        if choice == "always":
            raise InputError(f"params.yaml: caption.meteor is 'always', but {program}, or set it to auto")
        return program
    return {each: meteor(own, scores.references, program) for each, own in scores.candidates.items()}


def write_scores(
    scores: CaptionScores,
    metrics: Path,
    bounds: Path,
    settings: Mapping[str, Any],
    lineage: Lineage,
    meteor: Mapping[str, float] | str,
) -> str:
    """Write metrics and their bounds, with METEOR or why there is none; return the result as one line."""
    found: dict[str, Any] = {
        each: own | ({} if isinstance(meteor, str) else {"METEOR": meteor[each]})
        for each, own in scores.metrics.items()
    }
    own = scores.metrics[CAPTIONER]
    found |= {"images": len(scores.references), "collapsed": scores.warning is not None}
    limits: dict[str, Any] = {
        each: {key: list(pair) for key, pair in own_limits.items()}
        for each, own_limits in scores.intervals.items()
    }
    line = f"{scores.name}: {len(scores.references)} images, BLEU-4 {own['BLEU-4']:.3f}"
    if scores.above is not None:
        difference, low, high = scores.above
        found[ABOVE] = difference
        limits[ABOVE] = [low, high]
        baseline = scores.metrics[scores.best_baseline]["CIDEr-D"]
        line += (
            f", CIDEr-D {own['CIDEr-D']:.3f}, best baseline {baseline:.3f} ({scores.best_baseline}; "
            f"{difference:+.3f}, {low:+.3f} to {high:+.3f})"
        )
    line += f", {own['words_used']:.0f} different words, {own['distinct_captions']:.0%} distinct sentences"
    origin = {"made_with": dict(settings), "made_from": {"captioner": lineage["captioner"]["digest"]}}
    write_metrics(metrics, {scores.name: found})
    write_metrics(bounds, {scores.name: limits | {"level": LEVEL, "samples": SAMPLES}} | origin)
    return line if scores.warning is None else f"{line}; {scores.warning}"


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
