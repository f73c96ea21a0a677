"""The evaluation of tags: answers of several kinds against the true tags of a split.

A tagger can answer in three ways: with the tags that it writes (`path`, its own length), with its likeliest
concepts (`top_3`), and with all concepts above a probability (`above_0.5`). True tags that are no
concepts cannot be predicted. They stay in the truth, where they count against recall.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fne.core.errors import InputError
from fne.describing.concepts import Concepts, ConceptSource, membership
from fne.describing.settings import SCORED
from fne.describing.write import Tags, written_mask
from fne.evaluation.intervals import LEVEL, SAMPLES, label_intervals, map_interval
from fne.evaluation.metrics.tag_metrics import (
    label_metrics,
    mean_average_precision,
    top_k,
)
from fne.store.catalog import Captioned
from fne.store.checksums import write_metrics

PATH = "path"


@dataclass(frozen=True)
class TagScores:
    """The answers of a tagger for the images of a split, and their scores."""

    name: str  # of the split and the protocol
    names: list[str]  # the concepts, then the true tags that are none
    counts: list[int]  # training images that have each concept
    true: np.ndarray  # which of the names are true (images, names)
    answers: dict[str, np.ndarray]  # which are predicted, by the kind of answer (images, names)
    probabilities: np.ndarray | None  # of the concepts (images, concepts), if there are any

    @property
    def concepts(self) -> int:
        """The number of concepts."""
        return len(self.counts)

    @property
    def main(self) -> str:
        """The answer that speaks for the tagger: the tags that it writes, or else the likeliest."""
        return next(iter(self.answers))

    @cached_property
    def metrics(self) -> dict[str, Any]:
        """The metrics of all answers, and what was scored."""
        unlearned = self.true[:, self.concepts :]
        found: dict[str, Any] = {
            "images": len(self.true),
            "concepts": self.concepts,
            "unlearned_tags": unlearned.shape[1],
            "unlearned_occurrences": int(unlearned.sum()),
        }
        if self._is_ranked:
            found["mAP"] = mean_average_precision(*self._ranked())
        return found | {name: label_metrics(mask, self.true) for name, mask in self.answers.items()}

    @cached_property
    def intervals(self) -> dict[str, Any]:
        """The 95 % intervals of the metrics, [low, high], nested like the metrics."""
        found: dict[str, Any] = {}
        if self._is_ranked:
            found["mAP"] = list(map_interval(*self._ranked()))
        for name, mask in self.answers.items():
            bounds = label_intervals(mask, self.true)
            found[name] = {metric: list(each) for metric, each in bounds.items()}
        return found | {"level": LEVEL, "samples": SAMPLES}

    @property
    def _is_ranked(self) -> bool:
        return self.probabilities is not None and bool(self.true[:, : self.concepts].any())

    def _ranked(self) -> tuple[np.ndarray, np.ndarray]:
        assert self.probabilities is not None, "callers ask `_is_ranked` first"
        return self.probabilities, self.true[:, : self.concepts]


def images_to_tag(captioned: Sequence[Captioned], source: ConceptSource, split: str) -> list[Captioned]:
    """Return the images of a split that can be scored."""
    found = source.images(captioned, split)
    if not any(source.names(record) for record in found):
        usable = [each for each in SCORED if any(source.names(one) for one in source.images(captioned, each))]
        remedy = "see `catalog` in params.yaml"
        if usable:
            remedy = f"use `-S pipelines/tagging/params.yaml:tag.split={usable[0]}`"
        raise InputError(
            f"params.yaml: tag.split is '{split}', but no image of it has tags to compare with; {remedy}"
        )
    return found


def score_tags(
    name: str,
    concepts: Concepts,
    true: Sequence[set[str]],
    tags: Tags,
    top: int,
    threshold: float | None,
) -> TagScores:
    """Compare the answers of a tagger with the true tags of each image.

    Args:
        name: of the split and the protocol.
        top: how many of the likeliest concepts are an answer.
        threshold: the probability above which concepts are an answer; None if probabilities are only scores.
    """
    unlearned = sorted(set().union(*true) - set(concepts.names))
    names = [*concepts.names, *unlearned]
    mask = membership({each: number for number, each in enumerate(names)}, true)

    def padded(answer: np.ndarray) -> np.ndarray:
        return np.pad(answer, [(0, 0), (0, len(unlearned))])

    answers: dict[str, np.ndarray] = {}
    if tags.written is not None:
        answers[PATH] = padded(written_mask(tags.written, len(concepts.names)))
    if tags.probabilities is not None:
        answers[f"top_{top}"] = padded(top_k(tags.probabilities, top))
        if threshold is not None:
            answers[f"above_{threshold:g}"] = padded(tags.probabilities > threshold)
    return TagScores(name, names, concepts.counts, mask, answers, tags.probabilities)


def write_tag_scores(scores: TagScores, metrics: Path, intervals: Path) -> str:
    """Write metrics and intervals under their name; return the result as one line."""
    found, bounds, main = scores.metrics, scores.intervals, scores.main
    write_metrics(metrics, {scores.name: found})
    write_metrics(intervals, {scores.name: bounds})
    low, high = bounds[main]["image_f1"]
    ranked = f"mAP {found['mAP']:.1f}, " if "mAP" in found else ""
    return (
        f"{scores.name}: {found['images']} images, {ranked}F1 of {main} per class "
        f"{found[main]['class_f1']:.1f}, per image {found[main]['image_f1']:.1f} ({low:.1f} to {high:.1f}), "
        f"pooled {found[main]['pooled_f1']:.1f}"
    )
