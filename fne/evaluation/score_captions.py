"""The scores of written captions, beside baselines that need no captioner, and the files that hold them.

A captioner must beat all baselines on the same images and features, or it has learned nothing. So every
score is shown beside three of them: one sentence for all images, a caption of the nearest training image,
and the consensus of the captions of the nearest ones. The best of them is what a captioner is compared with.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fne.core.errors import InputError
from fne.describing.annotations import Written
from fne.describing.data import reference_sentences, spread_evenly
from fne.describing.settings import CAPTIONER
from fne.evaluation.caption_baselines import (
    consensus_captions,
    constant_caption,
    nearest_captions,
    nearest_training_images,
)
from fne.evaluation.intervals import LEVEL, SAMPLES, SEED, caption_intervals, mean_interval
from fne.evaluation.metrics.caption_metrics import bleu, cider_d, collapse_warning, summarize
from fne.evaluation.metrics.meteor import find_program, meteor
from fne.evaluation.protocols import FULL, ScoreCaptions, choose_folds, metrics_name, refuse_unwritten
from fne.evaluation.score_files import FAULTS, read_score_files, unfit, write_score_files
from fne.store.artifact import Artifact
from fne.store.catalog import Captioned, captioned_in, in_split
from fne.store.rows import Rows

CONSTANT, NEAREST, CONSENSUS = "constant", "nearest", "consensus"
BASELINES = (CONSENSUS, NEAREST, CONSTANT)
USUAL_REFERENCES = 5  # human captions per image, of published figures
ABOVE = "CIDEr-D_above_best_baseline"
DETAILS = ("warning", "notes", "meteor_missing", "validation")  # what no metric says about the scores


@dataclass(frozen=True)
class CaptionScores:
    """The scores of a captioner and of the baselines, on the same images."""

    name: str  # split and protocol
    metrics: dict[str, dict[str, float]]  # for the captioner and each baseline
    intervals: dict[str, dict[str, tuple[float, float]]]  # 95 % over images; not for METEOR
    above: tuple[float, float, float] | None  # CIDEr-D minus that of the best baseline, and its interval
    per_image: dict[str, float | None]  # the CIDEr-D of the captioner; None for a single image
    warning: str | None  # what is wrong with the captioner, if anything
    notes: list[str]  # about the figures, for the reader
    meteor_missing: str | None  # why there is no METEOR
    validation: dict[str, dict[str, float]] = field(default_factory=dict)  # see `validation_levels`

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
    meteor_choice: str = "never",
) -> CaptionScores:
    """Score the captions of images, and those of the baselines.

    Args:
        name: of the split and the protocol.
        references: the human captions of each image, cut as `reference_sentences` does, as is `training`.
        nearest: the positions of the nearest training images, the nearest first (images, neighbors).
        meteor_choice: as `meteor_scores` takes it.
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
    metrics = {each: summarize(own, own_references, known) for each, own in written.items()}
    above = None
    if several:
        difference = values[CAPTIONER] - values[best_baseline(metrics)]
        above = float(difference.mean()), *mean_interval(difference)
    meteors = meteor_scores(meteor_choice, written, own_references)
    if not isinstance(meteors, str):
        metrics = {each: own | {"METEOR": meteors[each]} for each, own in metrics.items()}
    return CaptionScores(
        name,
        metrics,
        {each: caption_intervals(own, own_references) for each, own in written.items()},
        above,
        dict(zip(ids, values[CAPTIONER].tolist() if several else [None], strict=True)),
        collapse_warning(candidates),
        _notes(own_references),
        meteors if isinstance(meteors, str) else None,
    )


def score_written(
    written: Mapping[str, Written],
    artifact: Artifact,
    captioned: Sequence[Captioned],
    rows: Rows,
    settings: ScoreCaptions,
) -> CaptionScores:
    """Score the captions of a split, which `artifact` holds, beside the baselines."""
    scored = choose_folds(FULL, captioned, settings.split, "score_captions")[0]
    references = reference_sentences(scored)
    training = reference_sentences(in_split(captioned, "train"))
    rows.check_ids(list(references))
    refuse_unwritten(artifact, written, list(references), "score_captions", settings.split)
    candidates = {image: written[image].caption for image in references}
    nearest = nearest_training_images(rows, list(references), list(training), settings.neighbors)
    name = metrics_name(settings.split, FULL)
    found = score_captions(name, candidates, references, training, nearest, settings.meteor)
    wanted = artifact.lineage[CAPTIONER]["settings"]["validation_images"]
    return replace(found, validation=validation_levels(captioned, rows, settings.neighbors, wanted))


def validation_levels(
    captioned: Sequence[Captioned], rows: Rows, neighbors: int, at_most: int
) -> dict[str, dict[str, float]]:
    """Return what captions without a captioner reach on the validation images of a captioner.

    `chance` is a caption of a training image drawn at random; `baseline` is the best of the baselines.
    """
    records = captioned_in(captioned, "val")
    validated = [records[place] for place in spread_evenly(len(records), at_most)]
    references, training = reference_sentences(validated), reference_sentences(in_split(captioned, "train"))
    if len(references) < 2:
        return {}
    captions = list(training.values())
    nearest = nearest_training_images(rows, list(references), list(training), neighbors)
    drawn = np.random.default_rng(SEED).integers(len(captions), size=(len(references), 1))
    answers = {
        "chance": nearest_captions(drawn, captions),
        CONSTANT: [constant_caption(captions)] * len(references),
        NEAREST: nearest_captions(nearest, captions),
        CONSENSUS: consensus_captions(nearest, captions),
    }
    found = {}
    for name, texts in answers.items():
        written = dict(zip(references, texts, strict=True))
        found[name] = {
            "CIDEr-D": cider_d(written, references).score,
            "BLEU-4": bleu(written, references).score[3],
        }
    return {"chance": found["chance"], "baseline": found[best_baseline(found)]}


def meteor_scores(
    choice: str, candidates: Mapping[str, Mapping[str, str]], references: Mapping[str, Sequence[str]]
) -> dict[str, float] | str:
    """Return METEOR of the captioner and of each baseline, or why there is none.

    The choice is `auto` (where the program is installed), `always` or `never`.
    """
    if choice == "never":
        return "score_captions.meteor is never"
    program = find_program()
    if isinstance(program, str):
        if choice == "always":
            raise InputError(
                f"params.yaml: score_captions.meteor is 'always', but {program}, or set it to auto"
            )
        return program
    return {each: meteor(own, references, program) for each, own in candidates.items()}


def write_caption_scores(
    scores: CaptionScores, metrics: Path, intervals: Path, settings: Mapping[str, Any], written: Artifact
) -> str:
    """Write metrics, and beside them intervals and the scores of images; return the result as one line."""
    found: dict[str, Any] = dict(scores.metrics)
    own = scores.metrics[CAPTIONER]
    found |= {"images": len(scores.per_image), "collapsed": scores.warning is not None}
    limits: dict[str, Any] = dict(scores.intervals)
    line = f"{scores.name}: {len(scores.per_image)} images, BLEU-4 {own['BLEU-4']:.3f}"
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
    details = {
        scores.name: limits | {"level": LEVEL, "samples": SAMPLES},
        "per_image": list(scores.per_image.items()),
        **{key: getattr(scores, key) for key in DETAILS},
    }
    write_score_files(metrics, intervals, {scores.name: found}, details, settings, written)
    return line if scores.warning is None else f"{line}; {scores.warning}"


def read_caption_scores(metrics: Path, intervals: Path, written: Artifact) -> CaptionScores:
    """Read the scores of written captions."""
    found, details = read_score_files(metrics, intervals, written, CAPTIONER)
    try:
        name, figures = next(iter(found.items()))
        limits, systems = details[name], (CAPTIONER, *BASELINES)
        return CaptionScores(
            name,
            {each: dict(figures[each]) for each in systems},
            {each: {key: (low, high) for key, (low, high) in limits[each].items()} for each in systems},
            (figures[ABOVE], *limits[ABOVE]) if ABOVE in figures else None,
            dict(details["per_image"]),
            **{key: details[key] for key in DETAILS},
        )
    except FAULTS as error:
        raise unfit(metrics, intervals, CAPTIONER, error) from None


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
