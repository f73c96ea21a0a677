"""The page about tags: three answers in three averages, every tag, the order of writing, and examples."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fne.describing.annotations import Tagged
from fne.evaluation.metrics.tag_metrics import average_precisions, per_class
from fne.evaluation.score_tags import TagScores
from fne.report.description_page import Frame, choose_thirds, render_description

PAGE = "tag_page"  # in lineages and records
MAIN = "val/f1_sum"  # the validation score that is drawn first
AVERAGES = {
    "class": ("Per tag", "mean over tags; papers write C-P, C-R, C-F1"),
    "image": ("Per image", "mean over images; some papers write O-P, O-R, O-F1"),
    "pooled": ("Pooled", "all tags of all images counted together; later papers write O-P, O-R, O-F1"),
}
SCORES = ("precision", "recall", "f1")
CONFUSIONS = 12  # pairs that are shown
CONCEPTS = 8  # of an example
# The plotting area of the chart of the order, in a picture of 420 x 230.
LEFT, RIGHT, TOP, BOTTOM = 42, 408, 22, 188


@dataclass(frozen=True)
class TagRow:
    """A tag: how frequent it is, how well it is found, and where it is written."""

    name: str
    training: int | None  # images; None for a tag that is no concept
    true: int
    predicted: int
    precision: float
    recall: float
    f1: float
    average_precision: float | None
    position: float | None  # the mean one, from 1


@dataclass(frozen=True)
class Dot:
    """A tag in the chart of the order."""

    x: float
    y: float
    title: str


@dataclass(frozen=True)
class TagExample:
    """An image with its tags."""

    id: str
    outcome: str  # `hit` (all right), `near` (some right) or `far` (none right)
    f1: float  # of its tags in percent
    tags: list[tuple[str, bool]]  # in the order in which they were written, and whether each is right
    missed: list[str]  # true tags that were not written
    concepts: list[tuple[str, float]]  # the likeliest ones, with their probabilities in percent


def tag_rows(results: TagScores, tagged: Sequence[Tagged]) -> list[TagRow]:
    """Return every tag, the frequent ones first."""
    found = per_class(results.answers[results.main], results.true)
    concepts = len(results.counts)
    precisions = np.full(len(results.names), np.nan)
    if results.probabilities is not None:
        precisions[:concepts] = average_precisions(results.probabilities, results.true[:, :concepts])
    positions = mean_positions(tagged)
    return [
        TagRow(
            name,
            results.counts[number] if number < concepts else None,
            int(found["true"][number]),
            int(found["predicted"][number]),
            float(found["precision"][number]),
            float(found["recall"][number]),
            float(found["f1"][number]),
            None if np.isnan(precisions[number]) else float(precisions[number]),
            positions.get(name),
        )
        for number, name in enumerate(results.names)
    ]


def mean_positions(tagged: Sequence[Tagged]) -> dict[str, float]:
    """Return the mean position of each tag among the written ones, counted from 1.

    Example:
        >>> mean_positions([Tagged("1", ["dog", "sea"], None, None), Tagged("2", ["sea"], None, None)])
        {'dog': 1.0, 'sea': 1.5}
    """
    places: dict[str, list[int]] = {}
    for image in tagged:
        for place, name in enumerate(image.tags or [], start=1):
            places.setdefault(name, []).append(place)
    return {name: sum(each) / len(each) for name, each in places.items()}


def rare_before_frequent(tagged: Sequence[Tagged], counts: Mapping[str, int]) -> float | None:
    """Return in which fraction of neighboring tags the rarer one was written first; None without pairs."""
    pairs = [
        (counts[first], counts[second])
        for image in tagged
        for first, second in zip(image.tags or [], (image.tags or [])[1:], strict=False)
        if counts[first] != counts[second]
    ]
    return sum(first < second for first, second in pairs) / len(pairs) if pairs else None


def confusions(results: TagScores, count: int = CONFUSIONS) -> list[tuple[str, str, int]]:
    """Return the most frequent pairs of a wrong tag and a missed one of the same image, with their number."""
    predicted, true = results.answers[results.main], results.true
    pairs = Counter[tuple[int, int]]()
    for wrong, missed in zip(predicted & ~true, true & ~predicted, strict=True):
        pairs.update((a, b) for a in np.flatnonzero(wrong).tolist() for b in np.flatnonzero(missed).tolist())
    ranked = sorted(pairs.items(), key=lambda item: (-item[1], item[0]))[:count]
    return [(results.names[wrong], results.names[missed], number) for (wrong, missed), number in ranked]


def choose_tag_examples(
    results: TagScores, tagged: Sequence[Tagged], count: int, seed: int
) -> list[TagExample]:
    """Choose up to `count` images by F1, as `choose_thirds` does; `tagged` has the scored images in order."""
    predicted, true = results.answers[results.main], results.true
    hits, sizes = (predicted & true).sum(axis=1), predicted.sum(axis=1) + true.sum(axis=1)
    f1 = np.where(
        sizes > 0, 200 * hits / np.maximum(sizes, 1), 100.0
    )  # silence is right where nothing is true
    positions = [each for third in choose_thirds(f1, count, seed).values() for each in third]
    return [_example(results, tagged[position], position, float(f1[position])) for position in positions]


def render_tags(
    results: TagScores, tagged: Sequence[Tagged], examples: Sequence[TagExample], frame: Frame
) -> str:
    """Return the page as HTML."""
    rows = tag_rows(results, tagged)
    counted = dict(zip(results.names, results.counts, strict=False))
    dots = _dots(rows)
    values = {
        "results": results,
        "averages": AVERAGES,
        "scores": SCORES,
        "cells": _cells(results),
        "rows": sorted(rows, key=lambda row: (-(row.training or 0), row.name)),
        "dots": dots,
        "x_ticks": _x_ticks(rows) if dots else [],
        "y_ticks": _y_ticks(rows) if dots else [],
        "frame": (LEFT, RIGHT, TOP, BOTTOM),
        "rare_first": rare_before_frequent(tagged, counted),
        "confusions": confusions(results),
        "examples": examples,
    }
    facts = {"Concepts": f"{len(results.counts)} ({frame.model.get('concepts', 'tags')})"}
    scripts = ("search.js", "sort.js")
    return render_description("tags.html", results.name, values, frame, facts, scripts)


def _example(results: TagScores, tagged: Tagged, position: int, f1: float) -> TagExample:
    true = {results.names[number] for number in np.flatnonzero(results.true[position])}
    written = tagged.tags if tagged.tags is not None else tagged.top or []
    outcome = "hit" if f1 == 100 else "near" if f1 > 0 else "far"
    seen: list[tuple[str, float]] = []
    if tagged.probabilities is not None:
        named = zip(results.names, tagged.probabilities, strict=False)  # the concepts come first
        ranked = sorted(named, key=lambda pair: -pair[1])
        seen = [(name, 100 * value) for name, value in ranked[:CONCEPTS]]
    return TagExample(
        tagged.id,
        outcome,
        f1,
        [(name, name in true) for name in written],
        sorted(true - set(written)),
        seen,
    )


def _cells(results: TagScores) -> list[tuple[str, list[tuple[str, str]], str]]:
    """Return each answer with its scores and their intervals as text, and the number of tags per image."""
    found = []
    for answer in results.answers:
        values, bounds = results.metrics[answer], results.intervals[answer]
        cells = []
        for average in AVERAGES:
            for score in SCORES:
                low, high = bounds[f"{average}_{score}"]
                cells.append((f"{values[f'{average}_{score}']:.1f}", f"{low:.1f} to {high:.1f}"))
        found.append((_title(answer), cells, f"{values['predicted_length']:.1f}"))
    return found


def _title(answer: str) -> str:
    kind, _, value = answer.partition("_")
    titles = {"path": "Tags as written", "top": f"The {value} likeliest", "above": f"All above {value}"}
    return titles[kind]


def _dots(rows: Sequence[TagRow]) -> list[Dot]:
    """Return the tags that were written, by training frequency and mean position."""
    shown = [row for row in rows if row.position is not None and row.training]
    return [
        Dot(
            round(_x(row.training or 1, rows), 1),
            round(_y(row.position or 1, rows), 1),
            f"{row.name}: {row.training} training images, mean position {row.position:.1f}",
        )
        for row in shown
    ]


def _x(training: int, rows: Sequence[TagRow]) -> float:
    logs = [np.log10(row.training) for row in rows if row.training]
    low, high = min(logs), max(max(logs), min(logs) + 0.1)
    return float(LEFT + (RIGHT - LEFT) * (np.log10(training) - low) / (high - low))


def _y(position: float, rows: Sequence[TagRow]) -> float:
    high = max(2.0, *(row.position or 1.0 for row in rows))
    return TOP + (BOTTOM - TOP) * (position - 1) / (high - 1)


def _x_ticks(rows: Sequence[TagRow]) -> list[tuple[float, str]]:
    numbers = sorted({row.training for row in rows if row.training})
    return [(round(_x(number, rows), 1), f"{number:,}") for number in (numbers[0], numbers[-1])]


def _y_ticks(rows: Sequence[TagRow]) -> list[tuple[float, str]]:
    high = int(max(2.0, *(row.position or 1.0 for row in rows)))
    return [(round(_y(position, rows), 1), str(position)) for position in range(1, high + 1)]
