"""The evaluation of written captions: what they are compared with, and the files of their scores."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fne.core.errors import InputError
from fne.describing.annotations import Written
from fne.evaluation.caption_scores import CAPTIONER, CaptionScores, score_captions
from fne.evaluation.intervals import LEVEL, SAMPLES
from fne.evaluation.metrics.meteor import find_program, meteor
from fne.evaluation.protocols import FULL, choose_folds, metrics_name
from fne.store.artifact import Lineage
from fne.store.catalog import Captioned, in_split
from fne.store.checksums import write_metrics
from fne.store.rows import Rows
from fne.text.caption_vocabulary import ptb_words

ABOVE = "CIDEr-D_above_best_baseline"
BLOCK = 1024  # training images compared at once


def images_to_caption(captioned: Sequence[Captioned], rows: Rows, split: str, images: str) -> list[str]:
    """Return the ids of the images that get a caption.

    Args:
        captioned: the catalog.
        rows: the image embeddings; an imported store may have more or fewer images than the catalog.
        split: the split that is scored.
        images: `all` of the catalog, or those of the `split`.

    Raises:
        InputError: if the split has no captions to score, or if an image of it has no row.
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
    """Score the captions of a split beside the floors.

    Args:
        written: the captions by image.
        captioned: the catalog.
        rows: the image embeddings, by which the floors find neighbors.
        split: what is scored.
        neighbors: of the consensus floor.

    Raises:
        InputError: if there is nothing to score.
    """
    references = reference_sentences(choose_folds(FULL, captioned, split)[0])
    training = reference_sentences(in_split(captioned, "train"))
    candidates = {image: written[image].caption for image in references}
    nearest = nearest_training_images(rows, list(references), list(training), neighbors)
    return score_captions(metrics_name(split, FULL), candidates, references, training, nearest)


def meteor_scores(choice: str, scores: CaptionScores) -> dict[str, float] | str:
    """Return METEOR of the captioner and of each floor, or why there is none.

    Args:
        choice: `auto` where the program is installed, `always`, or `never`.
        scores: the captions.

    Raises:
        InputError: if it must be computed and cannot be.
    """
    if choice == "never":
        return "caption.meteor is never"
    program = find_program()
    if isinstance(program, str):
        if choice == "always":
            raise InputError(f"params.yaml: caption.meteor is 'always', but {program}, or set it to auto")
        return program
    return {each: meteor(own, scores.references, program) for each, own in scores.candidates.items()}


def reference_sentences(captioned: Sequence[Captioned]) -> dict[str, list[str]]:
    """Return the captions of images as published scores cut them; images without captions are left out."""
    return {
        record.id: [" ".join(ptb_words(caption)) for caption in record.captions]
        for record in captioned
        if record.captions
    }


def nearest_training_images(
    rows: Rows, ids: Sequence[str], training: Sequence[str], neighbors: int
) -> np.ndarray:
    """Return the positions of the nearest training images by cosine, the nearest first (images, neighbors).

    Ties go to the earlier training image. Training rows are read in blocks, so that their number does not
    matter.
    """
    ours = _unit(rows.read(ids, np.float32))
    best = np.zeros((len(ids), 0))
    positions = np.zeros((len(ids), 0), dtype=np.int64)
    start = 0
    for block, values in rows.blocks(training, BLOCK, np.float32):
        similarity = np.concatenate([best, ours @ _unit(values).T], axis=1)
        numbers = np.broadcast_to(np.arange(start, start + len(block)), (len(ids), len(block)))
        candidates = np.concatenate([positions, numbers], axis=1)
        # Stable: of equal ones the earlier image comes first.
        order = np.argsort(-similarity, axis=1, kind="stable")[:, :neighbors]
        best = np.take_along_axis(similarity, order, axis=1)
        positions = np.take_along_axis(candidates, order, axis=1)
        start += len(block)
    return positions


def write_scores(
    scores: CaptionScores,
    metrics: Path,
    bounds: Path,
    settings: Mapping[str, Any],
    lineage: Lineage,
    meteor: Mapping[str, float] | str,
) -> str:
    """Write both files of scores; return the result as one line.

    Args:
        scores: what was found.
        metrics: `metrics/captions.json`.
        bounds: `metrics/caption_intervals.json`.
        settings: of the stage.
        lineage: of the captions.
        meteor: METEOR of the captioner and of each floor, or why there is none.
    """
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


def _unit(rows: np.ndarray) -> np.ndarray:
    if np.isnan(rows).any():
        raise InputError(f"caption floors: {np.isnan(rows).sum()} values of the image rows are NaN")
    norms = np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
    unit: np.ndarray = rows / np.where(norms > 0, norms, 1)
    return unit
