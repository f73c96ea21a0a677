"""The evaluation of tags: answers of several kinds against the true tags of a split.

A tagger can answer in three ways: with the tags that it writes (`path`, its own length), with its likeliest
concepts (`top_3`), and with all concepts above a probability (`above_0.5`). True tags that are no
concepts cannot be predicted. They stay in the truth, where they count against recall.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fne.core.errors import InputError
from fne.describing.concepts import ConceptSource
from fne.describing.settings import SCORED
from fne.evaluation.intervals import LEVEL, SAMPLES, label_intervals, map_interval
from fne.evaluation.metrics.tag_metrics import (
    label_metrics,
    mean_average_precision,
    per_class,
    top_k,
)
from fne.store.catalog import Captioned
from fne.store.checksums import write_metrics

PATH = "path"


@dataclass(frozen=True)
class LabelEvaluation:
    """The answers of a tagger for the images of a split.

    Attributes:
        names: the concepts, then the true tags that are none.
        concepts: the number of concepts.
        true: which of the names are true (images, names).
        answers: which of the names are predicted, by the kind of answer (images, names).
        probabilities: of the concepts (images, concepts), if there are any.
    """

    names: list[str]
    concepts: int
    true: np.ndarray
    answers: dict[str, np.ndarray]
    probabilities: np.ndarray | None

    @property
    def main(self) -> str:
        """The answer that speaks for the tagger: the tags that it writes, or else the likeliest."""
        return next(iter(self.answers))

    def metrics(self) -> dict[str, Any]:
        """Return the metrics of all answers, and what was scored."""
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

    def intervals(self) -> dict[str, Any]:
        """Return 95 % intervals of the metrics, [low, high], nested like the metrics."""
        found: dict[str, Any] = {}
        if self._is_ranked:
            found["mAP"] = list(map_interval(*self._ranked()))
        for name, mask in self.answers.items():
            bounds = label_intervals(mask, self.true)
            found[name] = {metric: list(each) for metric, each in bounds.items()}
        return found | {"level": LEVEL, "samples": SAMPLES}

    def by_class(self) -> dict[str, np.ndarray]:
        """Return precision, recall and F1 of every name, for the main answer."""
        return per_class(self.answers[self.main], self.true)

    @property
    def _is_ranked(self) -> bool:
        return self.probabilities is not None and bool(self.true[:, : self.concepts].any())

    def _ranked(self) -> tuple[np.ndarray, np.ndarray]:
        assert self.probabilities is not None, "callers ask `_is_ranked` first"
        return self.probabilities, self.true[:, : self.concepts]


def images_to_tag(captioned: Sequence[Captioned], source: ConceptSource, split: str) -> list[Captioned]:
    """Return the images of a split that can be scored.

    Raises:
        InputError: if none has a true tag.
    """
    found = source.images(captioned, split)
    if not any(source.names(record) for record in found):
        usable = [each for each in SCORED if any(source.names(one) for one in source.images(captioned, each))]
        remedy = f"use `-S tag.split={usable[0]}`" if usable else "see `catalog` in params.yaml"
        raise InputError(
            f"params.yaml: tag.split is '{split}', but no image of it has tags to compare with; {remedy}"
        )
    return found


def evaluate_labels(
    concepts: Sequence[str],
    true: Sequence[set[str]],
    probabilities: np.ndarray | None,
    written: np.ndarray | None,
    top: int,
    threshold: float | None,
) -> LabelEvaluation:
    """Compare the answers of a tagger with the true tags.

    Args:
        concepts: the names of the concepts.
        true: the true tags of each image.
        probabilities: of the concepts (images, concepts), if there are any.
        written: which concepts were written (images, concepts), if any were.
        top: how many of the likeliest concepts are an answer.
        threshold: the probability above which concepts are an answer; None if probabilities are only scores.
    """
    unlearned = sorted(set().union(*true) - set(concepts))
    names = [*concepts, *unlearned]
    numbers = {name: number for number, name in enumerate(names)}
    mask = np.zeros((len(true), len(names)), dtype=bool)
    for row, own in zip(mask, true, strict=True):
        row[[numbers[name] for name in own]] = True

    def padded(answer: np.ndarray) -> np.ndarray:
        return np.pad(answer, [(0, 0), (0, len(unlearned))])

    answers: dict[str, np.ndarray] = {}
    if written is not None:
        answers[PATH] = padded(written)
    if probabilities is not None:
        answers[f"top_{top}"] = padded(top_k(probabilities, top))
        if threshold is not None:
            answers[f"above_{threshold:g}"] = padded(probabilities > threshold)
    return LabelEvaluation(names, len(concepts), mask, answers, probabilities)


def write_label_results(
    evaluation: LabelEvaluation, name: str, metrics: Path, intervals: Path, log: Callable[[str], None]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Write metrics and intervals under the name of a protocol; return both."""
    found, bounds = evaluation.metrics(), evaluation.intervals()
    write_metrics(metrics, {name: found})
    write_metrics(intervals, {name: bounds})
    main = evaluation.main
    low, high = bounds[main]["image_f1"]
    ranked = f"mAP {found['mAP']:.1f}, " if "mAP" in found else ""
    log(
        f"{name}: {found['images']} images, {ranked}F1 of {main} per class {found[main]['class_f1']:.1f}, "
        f"per image {found[main]['image_f1']:.1f} ({low:.1f} to {high:.1f}), "
        f"pooled {found[main]['pooled_f1']:.1f}"
    )
    return found, bounds
