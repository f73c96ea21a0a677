"""How well the scores of a model agree with judgments of people, beside the closed-form baseline.

`metrics/judgments.json` has each figure with its 95 % interval over images, those of the model, of the
baseline and of their paired difference, and the agreement of the judges, which is a ceiling. The table of
judged pairs beside it has the scores of both, and the pairs that were left out with the reason.
"""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fne.core.device import download
from fne.core.errors import InputError
from fne.core.files import write_text
from fne.evaluation.agreement import (
    Samples,
    agreement,
    agreement_within,
    judges_agreement,
    means_of_queries,
    set_figures,
    summarized,
)
from fne.evaluation.intervals import LEVEL, SAMPLES
from fne.evaluation.judgments import Graded, RightSets
from fne.evaluation.metrics.ranks import Similarity
from fne.store.artifact import Artifact, Lineage
from fne.store.catalog import Captioned
from fne.store.checksums import read_metrics, write_metrics
from fne.store.rows import Rows

SHOWN = 3  # pairs that are left out, in lines
BLOCK = 128  # queries that are scored at once
MULTIPLE = 16  # blocks of one shape, or rounding would part equal scores
MISSING, NEVER = -1, np.iinfo(np.int64).max  # a right answer that cannot be found, and its rank
MODEL, BASELINE, DIFFERENCE = "model", "baseline", "difference"
COLUMNS = ("image", "caption", "grade", MODEL, BASELINE, "left_out")
REMEDY = "run `dvc repro pipelines/judgments/dvc.yaml`"

Sides = dict[str, dict[str, Samples]]  # side: group of pairs, or direction: samples


@dataclass(frozen=True)
class Scored:
    """The images and captions that are scored: their places by id, and the image of each caption."""

    images: dict[str, int]
    captions: dict[str, int]
    owners: np.ndarray

    @classmethod
    def of(cls, records: Sequence[Captioned]) -> "Scored":
        """Number images and captions in the order of the catalog."""
        captions = [each for record in records for each in record.caption_ids]
        return cls(
            {record.id: place for place, record in enumerate(records)},
            {each: place for place, each in enumerate(captions)},
            np.repeat(np.arange(len(records)), [len(record.captions) for record in records]),
        )

    def space(self, stores: tuple[Rows, Rows], similarity: Similarity, device: torch.device) -> "Space":
        """Read the vectors of images and captions."""
        images, captions = (
            torch.from_numpy(rows.read(list(ids))).to(device)
            for rows, ids in zip(stores, (self.images, self.captions), strict=True)
        )
        return Space(images, captions, similarity)


@dataclass(frozen=True)
class Space:
    """The vectors of all images and captions that are scored, and their similarity."""

    images: Tensor
    captions: Tensor
    similarity: Similarity

    def scores(self, by_image: bool, queries: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield the scores of some queries with all answers, block by block (queries, answers)."""
        own, answers = (self.images, self.captions) if by_image else (self.captions, self.images)
        padded = _padded(answers, -(-len(answers) // MULTIPLE) * MULTIPLE)
        for start in range(0, len(queries), BLOCK):
            part = slice(start, min(start + BLOCK, len(queries)))
            block = _padded(own[torch.from_numpy(queries[part]).to(own.device)], BLOCK)
            found = self.similarity(block, padded) if by_image else self.similarity(padded, block).T
            yield part, download(found[: part.stop - start, : len(answers)].contiguous()).numpy()


def score(
    judged: Graded | RightSets,
    spaces: Mapping[str, Space],
    scored: Scored,
    acceptable: float,
    recalls: Sequence[int],
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the figures of judgments of either kind, and the scores of graded pairs by side."""
    if isinstance(judged, Graded):
        return score_graded(judged, spaces, scored, acceptable)
    return score_sets(judged, spaces, scored, recalls), {}


def score_graded(
    graded: Graded,
    spaces: Mapping[str, Space],
    scored: Scored,
    acceptable: float,
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the figures of graded pairs, and the scores of the pairs by side.

    Args:
        spaces: those of the model and, if there is one, of the baseline.
        acceptable: the grade from which a pair is acceptable; 0 is that of the kind of judgments.
    """
    images = np.array([scored.images[each] for each in graded.images])
    captions = np.array([scored.captions[each] for each in graded.captions])
    threshold = graded.acceptable(acceptable)
    scores = {side: _of_pairs(space, images, captions) for side, space in spaces.items()}
    _, judged = np.unique(images, return_inverse=True)  # only judged images are drawn
    judged = judged.reshape(-1)
    groups = {"all": np.ones(len(images), dtype=bool), "without_own": scored.owners[captions] != images}
    sides: Sides = {}
    for side, values in scores.items():
        sides[side] = {
            name: agreement(values[chosen], graded.grades[chosen], judged[chosen], threshold)
            for name, chosen in groups.items()
            if chosen.any()
        }
        sides[side]["within_image"] = agreement_within(values, graded.grades, judged)
    return {
        "judged_by": graded.kind,
        "acceptable": threshold,
        "pairs": len(images),
        "images": len(np.unique(images)),
        "own_captions": int((~groups["without_own"]).sum()),
        "left_out": len(graded.left_out),
        "judges": judges_agreement(graded.judges) if graded.judges.shape[1] > 1 else {},
        **_summaries(sides),
    }, scores


def score_sets(
    right: RightSets,
    spaces: Mapping[str, Space],
    scored: Scored,
    recalls: Sequence[int],
) -> dict[str, Any]:
    """Return the figures of queries with several right answers; see `score_graded`."""
    sides: Sides = {side: {} for side in spaces}
    for name, truth, own, others in (
        ("image_to_text", right.captions, scored.images, scored.captions),
        ("text_to_image", right.images, scored.captions, scored.images),
    ):
        by_image = name == "image_to_text"
        queries = np.array([own[each] for each in truth])
        answers = [np.array([others.get(each, MISSING) for each in found]) for found in truth.values()]
        images = queries if by_image else scored.owners[queries]
        _, drawn = np.unique(images, return_inverse=True)
        for side, space in spaces.items():
            figures = set_figures(_ranks(space, by_image, queries, answers), recalls)
            sides[side][name] = means_of_queries(figures, drawn.reshape(-1))
    return {
        "judged_by": right.kind,
        "queries": {"image_to_text": len(right.captions), "text_to_image": len(right.images)},
        "left_out": len(right.left_out),
        **_summaries(sides),
    }


def write_judgments(
    path: Path,
    pairs: Path,
    name: str,
    found: dict[str, Any],
    judged: Graded | RightSets,
    scores: Mapping[str, np.ndarray],
    lineage: Lineage,
) -> None:
    """Write the figures, under the name of the split and protocol, and the table of pairs."""
    made_from = {each: entry["digest"] for each, entry in sorted(lineage.items())}
    write_metrics(path, {name: found | {"level": LEVEL, "samples": SAMPLES}, "made_from": made_from})
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    if isinstance(judged, Graded):
        both = [scores.get(side) for side in (MODEL, BASELINE)]
        for place, (image, caption) in enumerate(zip(judged.images, judged.captions, strict=True)):
            values = ["" if each is None else f"{each[place]:.6g}" for each in both]
            writer.writerow([image, caption, f"{judged.grades[place]:g}", *values, ""])
    writer.writerows([image, caption, "", "", "", reason] for image, caption, reason in judged.left_out)
    write_text(pairs, text.getvalue())


def left_out_lines(judged: Graded | RightSets, pairs: Path) -> list[str]:
    """Return lines about what was left out; all of it is listed in the table of pairs."""
    if not judged.left_out:
        return []
    first = [" ".join(filter(None, each[:2])) + f": {each[2]}" for each in judged.left_out[:SHOWN]]
    return [
        *(f"left out: {each}" for each in first),
        f"left out: {len(judged.left_out):,}, listed in {pairs}",
    ]


def headline(name: str, found: Mapping[str, Any]) -> str:
    """Return the main figure of the model as a line, with its interval and the difference to the baseline."""
    sets = "queries" in found
    group, figure = ("text_to_image", "map_at_r") if sets else ("all", "spearman")
    amount = f"{sum(found['queries'].values()):,} queries" if sets else f"{found['pairs']:,} pairs"

    def text(side: str, sign: str = "") -> str:
        own = found[side][group].get(figure) if side in found else None
        return (
            f"{own['value']:{sign}.3f} ({own['low']:{sign}.3f} to {own['high']:{sign}.3f})" if own else "none"
        )

    title = "mAP@R of images for sentences" if sets else "Spearman's correlation with the grades"
    return (
        f"{name}: {amount} judged by {found['judged_by']}, {found['left_out']:,} left out; {title} "
        f"{text(MODEL)}, closed-form baseline {text(BASELINE)}, difference {text(DIFFERENCE, '+')}"
    )


def read_judged(path: Path, evaluation: Artifact) -> dict[str, Any]:
    """Read the figures that `write_judgments` wrote of the same evaluation; those of another are refused."""
    content = read_metrics(path, REMEDY)
    name = evaluation.settings["name"]
    if not isinstance(content.get(name), dict) or not isinstance(content.get("made_from"), dict):
        raise InputError(f"{path}: has no figures for {name}; {REMEDY}")
    for each in ("model", "captions", "embeddings"):
        own, other = (str(own) for own in (content["made_from"].get(each), _digest(evaluation, each)))
        if own != other:
            raise InputError(
                f"{path} was made from {each} {own[:12]}…, but the evaluation from {other[:12]}…; {REMEDY}"
            )
    found: dict[str, Any] = content[name]
    return found


def _digest(evaluation: Artifact, name: str) -> str | None:
    return evaluation.lineage.get(name, {}).get("digest")


def _summaries(sides: Sides) -> dict[str, Any]:
    """Return every figure with its interval, by side, and the paired differences."""
    if BASELINE in sides:
        sides[DIFFERENCE] = {
            group: {name: values - sides[BASELINE][group][name] for name, values in samples.items()}
            for group, samples in sides[MODEL].items()
        }
    return {
        side: {
            group: {name: summary for name, each in samples.items() if (summary := summarized(each))}
            for group, samples in groups.items()
        }
        for side, groups in sides.items()
    }


def _of_pairs(space: Space, images: np.ndarray, captions: np.ndarray) -> np.ndarray:
    """Return the score of each pair (pairs), given the places of its image and its caption."""
    queries, rows = np.unique(images, return_inverse=True)
    rows, scores = rows.reshape(-1), np.empty(len(images))
    for part, block in space.scores(True, queries):
        own = (rows >= part.start) & (rows < part.stop)
        scores[own] = block[rows[own] - part.start, captions[own]]
    return scores


def _ranks(
    space: Space, by_image: bool, queries: np.ndarray, answers: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """Return the rank of each right answer of each query, from 1; a wrong one of equal score is before it."""
    found: list[np.ndarray] = []
    for part, block in space.scores(by_image, queries):
        for scores, right in zip(block, answers[part], strict=True):
            own = scores[right[right != MISSING]]
            better = np.sort(scores[scores >= own.min()])
            ascending = np.sort(own)
            # As many as score at least the same, less the right ones among them that are not before it.
            at_least = len(better) - np.searchsorted(better, ascending)
            equal = np.searchsorted(ascending, ascending, "right") - np.arange(len(own)) - 1
            found.append(np.append(at_least - equal, np.full(len(right) - len(own), NEVER)))
    return found


def _padded(vectors: Tensor, rows: int) -> Tensor:
    padded = vectors.new_zeros((rows, vectors.shape[1]))
    padded[: len(vectors)] = vectors
    return padded
