"""The evaluation of tags: answers of several kinds against the true tags of a split.

A tagger can answer in three ways: with the tags that it writes (`path`, its own length), with its likeliest
concepts (`top_3`), and with all concepts above a probability (`above_0.5`). True tags that are no
concepts cannot be predicted. They stay in the truth, where they count against recall.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fne.core.errors import InputError
from fne.describing.annotations import TaggedFile
from fne.describing.concepts import Concepts, ConceptSource, membership, recorded_source
from fne.describing.settings import TAGGER
from fne.describing.write import Tags, written_mask
from fne.evaluation.intervals import LEVEL, SAMPLES, SEED, label_intervals, map_interval
from fne.evaluation.metrics.tag_metrics import (
    average_precisions,
    label_metrics,
    mean_average_precision,
    per_class,
    top_k,
)
from fne.evaluation.protocols import FULL, SCORED, ScoreTags, metrics_name, refuse_unwritten
from fne.evaluation.score_files import FAULTS, read_score_files, unfit, write_score_files
from fne.store.artifact import Artifact
from fne.store.catalog import Captioned

PATH = "path"
CONFUSIONS = 12  # pairs that are kept


@dataclass(frozen=True)
class TagScores:
    """The answers of a tagger for the images of a split, and their scores."""

    name: str  # split and protocol
    names: list[str]  # the concepts, then the true tags that are none
    counts: list[int]  # training images that have each concept
    true: np.ndarray  # which of the names are true (images, names)
    answers: dict[str, np.ndarray]  # which are predicted, by the kind of answer (images, names)
    probabilities: np.ndarray | None  # (images, concepts), if there are any concepts

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


@dataclass(frozen=True)
class TagRow:
    """A tag: how frequent it is, and how well it is found."""

    name: str
    training: int | None  # images; None for a tag that is not a concept
    true: int
    predicted: int
    precision: float
    recall: float
    f1: float
    average_precision: float | None


@dataclass(frozen=True)
class TagResults:
    """The scores of a tagger as its files have them."""

    name: str  # split and protocol
    metrics: dict[str, Any]  # as `TagScores` has them
    intervals: dict[str, Any]
    tags: list[TagRow]  # the concepts, then the true tags that are none
    image_f1: dict[str, float]  # F1 of the main answer in percent, by image id
    confusions: list[tuple[str, str, int]]
    validation: dict[str, dict[str, float]]  # see `validation_levels`

    @property
    def answers(self) -> list[str]:
        """The kinds of answers, of which the first one speaks for the tagger."""
        return [name for name, value in self.metrics.items() if isinstance(value, dict)]


def images_to_tag(captioned: Sequence[Captioned], source: ConceptSource, split: str) -> list[Captioned]:
    """Return the images of a split that can be scored."""
    found = source.images(captioned, split)
    if not any(source.names(record) for record in found):
        usable = [each for each in SCORED if any(source.names(one) for one in source.images(captioned, each))]
        remedy = "see `catalog` in params.yaml"
        if usable:
            remedy = f"use `-S pipelines/tagging/params.yaml:score_tags.split={usable[0]}`"
        raise InputError(
            f"params.yaml: score_tags.split is '{split}', but no image of it has tags to compare with; "
            f"{remedy}"
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


def score_tagged(file: TaggedFile, captioned: Sequence[Captioned], settings: ScoreTags) -> TagResults:
    """Score the tags of a split, which a file holds."""
    made = file.artifact.lineage[TAGGER]["settings"]
    source, names = recorded_source(made), file.concepts.numbers
    records = images_to_tag(captioned, source, settings.split)
    ids, tagged = [record.id for record in records], {each.id: each for each in file.images}
    refuse_unwritten(file.artifact, tagged, ids, "score_tags", settings.split)
    images = [tagged[image] for image in ids]
    written = [each.tags for each in images if each.tags is not None]
    probabilities = [each.probabilities for each in images if each.probabilities is not None]
    tags = Tags(
        np.array(probabilities, dtype=np.float32) if probabilities else None,
        [[names[tag] for tag in own] for own in written] if written else None,
    )
    # The outputs of other losses are scores, not probabilities.
    threshold = settings.threshold if made["concept_loss"] == "logistic" else None
    truth = [source.names(record) for record in records]
    top = file.artifact.settings["top_k"]
    name = metrics_name(settings.split, FULL)
    learned = (source.images(captioned, split) for split in ("train", "val"))
    levels = validation_levels(*(membership(names, map(source.names, each)) for each in learned))
    return tag_results(score_tags(name, file.concepts, truth, tags, top, threshold), ids, levels)


def validation_levels(training: np.ndarray, validation: np.ndarray) -> dict[str, dict[str, float]]:
    """Return what answers that ignore the image reach in a validation, given the true concepts of images.

    `chance` is the tags of a training image that is drawn at random; `baseline` is the most frequent tags, as
    many as an image has on average.
    """
    if not training.size or not validation.size:
        return {}
    drawn = training[np.random.default_rng(SEED).integers(len(training), size=len(validation))]
    shares = np.broadcast_to(training.mean(axis=0), validation.shape)
    frequent = top_k(shares, max(1, round(float(training.sum(axis=1).mean()))))
    found = {}
    for name, answer in {"chance": drawn, "baseline": frequent}.items():
        scores = label_metrics(answer, validation)
        found[name] = {key: scores[key] for key in ("class_f1", "image_f1", "pooled_f1")}
        found[name]["f1_sum"] = scores["class_f1"] + scores["image_f1"]
    return found


def tag_results(
    scores: TagScores, ids: Sequence[str], validation: dict[str, dict[str, float]] | None = None
) -> TagResults:
    """Return all scores of the images `ids`."""
    f1 = dict(zip(ids, image_f1(scores).tolist(), strict=True))
    rows, confused = tag_rows(scores), confusions(scores)
    return TagResults(scores.name, scores.metrics, scores.intervals, rows, f1, confused, validation or {})


def tag_rows(scores: TagScores) -> list[TagRow]:
    """Return every tag with the scores of the main answer."""
    found = per_class(scores.answers[scores.main], scores.true)
    precisions = np.full(len(scores.names), np.nan)
    if scores.probabilities is not None:
        true = scores.true[:, : scores.concepts]
        precisions[: scores.concepts] = average_precisions(scores.probabilities, true)
    return [
        TagRow(
            name,
            scores.counts[number] if number < scores.concepts else None,
            int(found["true"][number]),
            int(found["predicted"][number]),
            float(found["precision"][number]),
            float(found["recall"][number]),
            float(found["f1"][number]),
            None if np.isnan(precisions[number]) else float(precisions[number]),
        )
        for number, name in enumerate(scores.names)
    ]


def image_f1(scores: TagScores) -> np.ndarray:
    """Return the F1 of the main answer for each image, in percent (images)."""
    predicted, true = scores.answers[scores.main], scores.true
    hits, sizes = (predicted & true).sum(axis=1), predicted.sum(axis=1) + true.sum(axis=1)
    # Silence is right where nothing is true.
    f1: np.ndarray = np.where(sizes > 0, 200 * hits / np.maximum(sizes, 1), 100.0)
    return f1


def confusions(scores: TagScores, count: int = CONFUSIONS) -> list[tuple[str, str, int]]:
    """Return the most frequent pairs of a wrong tag and a missed one of the same image, with their number."""
    predicted, true = scores.answers[scores.main], scores.true
    pairs = Counter[tuple[int, int]]()
    for wrong, missed in zip(predicted & ~true, true & ~predicted, strict=True):
        pairs.update((a, b) for a in np.flatnonzero(wrong).tolist() for b in np.flatnonzero(missed).tolist())
    ranked = sorted(pairs.items(), key=lambda item: (-item[1], item[0]))[:count]
    return [(scores.names[wrong], scores.names[missed], number) for (wrong, missed), number in ranked]


def write_tag_results(
    results: TagResults, metrics: Path, intervals: Path, settings: Mapping[str, Any], tagged: Artifact
) -> str:
    """Write metrics, and beside them intervals and the scores of tags and images; return them as one line."""
    found, bounds, main = results.metrics, results.intervals, results.answers[0]
    details = {
        results.name: bounds,
        "tags": [asdict(row) for row in results.tags],
        "image_f1": list(results.image_f1.items()),
        "confusions": results.confusions,
        "validation": results.validation,
    }
    write_score_files(metrics, intervals, {results.name: found}, details, settings, tagged)
    low, high = bounds[main]["image_f1"]
    ranked = f"mAP {found['mAP']:.1f}, " if "mAP" in found else ""
    return (
        f"{results.name}: {found['images']} images, {ranked}F1 of {main} per class "
        f"{found[main]['class_f1']:.1f}, per image {found[main]['image_f1']:.1f} ({low:.1f} to {high:.1f}), "
        f"pooled {found[main]['pooled_f1']:.1f}"
    )


def read_tag_results(metrics: Path, intervals: Path, tagged: Artifact) -> TagResults:
    """Read the scores of tags."""
    found, details = read_score_files(metrics, intervals, tagged, TAGGER)
    try:
        name, figures = next(iter(found.items()))
        return TagResults(
            name,
            figures,
            details[name],
            [TagRow(**row) for row in details["tags"]],
            dict(details["image_f1"]),
            [(wrong, missed, number) for wrong, missed, number in details["confusions"]],
            details["validation"],
        )
    except FAULTS as error:
        raise unfit(metrics, intervals, TAGGER, error) from None
