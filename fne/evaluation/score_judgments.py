"""How well the scores of a model agree with judgments of people, beside the closed-form baseline.

The figures come with a 95 % interval over images, and with the paired difference from the baseline.
`fne.evaluation.judgments_file` writes them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fne.core.device import download
from fne.evaluation.agreement import (
    Samples,
    agreement,
    agreement_within,
    judges_agreement,
    means_of_queries,
    set_figures,
    summarized,
)
from fne.evaluation.judgments import Graded, RightSets
from fne.evaluation.judgments_file import BASELINE, DIFFERENCE, MODEL
from fne.evaluation.metrics.ranks import Similarity
from fne.store.catalog import Captioned
from fne.store.rows import Rows

BLOCK = 256  # queries that are scored at once, at most
MULTIPLE = 16  # blocks of one shape, or rounding would part equal scores
MISSING, NEVER = -1, np.iinfo(np.int64).max  # a right answer that cannot be found, and its rank

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
        padded, blocks = _padded(answers, _round_up(len(answers))), -(-len(queries) // BLOCK)
        size = _round_up(-(-len(queries) // blocks))
        for start in range(0, len(queries), size):
            part = slice(start, min(start + size, len(queries)))
            block = _padded(own[torch.from_numpy(queries[part]).to(own.device)], size)
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
    from fne.evaluation.agreement_kernels import rank_right  # numba: slow to import

    bounds = np.cumsum([0, *map(len, answers)])
    right, found = np.concatenate(answers), np.full(bounds[-1], NEVER)
    for part, block in space.scores(by_image, queries):
        rank_right(block, bounds[part.start : part.stop + 1], right, found)
    return np.split(found, bounds[1:-1])


def _padded(vectors: Tensor, rows: int) -> Tensor:
    padded = vectors.new_zeros((rows, vectors.shape[1]))
    padded[: len(vectors)] = vectors
    return padded


def _round_up(count: int) -> int:
    return -(-count // MULTIPLE) * MULTIPLE
