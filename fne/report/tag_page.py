"""The page about tags: three answers in three averages, every tag, the order of writing, and examples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fne.describing.annotations import Tagged
from fne.describing.settings import TAGGER
from fne.evaluation.score_tags import TagResults, TagRow
from fne.report.description_page import at_a_glance, choose_thirds, render_description
from fne.report.facts import settings_of
from fne.report.frame import Frame

PAGE = "tags_page"  # in lineages, records and `params.yaml`
MAIN = "val/f1_sum"  # the validation score that is drawn first
LEVELS_NOTE = (
    "Chance is the tags of a training image drawn at random; the baseline is the most frequent tags, the "
    "same for every image."
)
AVERAGES = {
    "class": ("Per tag", "mean over tags; papers write C-P, C-R, C-F1"),
    "image": ("Per image", "mean over images; some papers write O-P, O-R, O-F1"),
    "pooled": ("Pooled", "all tags of all images counted together; later papers write O-P, O-R, O-F1"),
}
SCORES = ("precision", "recall", "f1")
CONCEPTS = 8  # how many an example shows
GOOD = 50  # the F1 of a good example in the first look
# The plotting area of the chart of the order, in a picture of 420 x 230.
LEFT, RIGHT, TOP, BOTTOM = 42, 408, 22, 188


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
    f1: float  # its tags' F1 in percent
    tags: list[tuple[str, bool]]  # in the order in which they were written, and whether each is right
    missed: list[str]  # true tags that were not written
    concepts: list[tuple[str, float]]  # the likeliest ones, with their probabilities in percent


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


def choose_tag_examples(
    results: TagResults, tagged: Mapping[str, Tagged], true: Mapping[str, set[str]], count: int, seed: int
) -> list[TagExample]:
    """Choose up to `count` images by F1, as `choose_thirds` does, given the tags and true tags of each."""
    ids, f1 = list(results.image_f1), np.array(list(results.image_f1.values()))
    chosen = [ids[each] for third in choose_thirds(f1, count, seed).values() for each in third]
    concepts = [row.name for row in results.tags]  # the concepts come first
    return [_example(tagged[image], true[image], concepts, results.image_f1[image]) for image in chosen]


def render_tags(
    results: TagResults, tagged: Mapping[str, Tagged], examples: Sequence[TagExample], frame: Frame
) -> str:
    """Return the page as HTML."""
    scored = [tagged[image] for image in results.image_f1]
    counted = {row.name: row.training for row in results.tags if row.training is not None}
    positions = mean_positions(scored)
    rows = sorted(results.tags, key=lambda row: (-(row.training or 0), row.name))
    dots = _dots(results.tags, positions)
    values = {
        "results": results,
        "levels_note": LEVELS_NOTE if results.validation else "",
        "averages": AVERAGES,
        "scores": SCORES,
        "cells": _cells(results),
        "rows": [(row, positions.get(row.name)) for row in rows],
        "dots": dots,
        "x_ticks": _x_ticks(results.tags) if dots else [],
        "y_ticks": _y_ticks(positions) if dots else [],
        "frame": (LEFT, RIGHT, TOP, BOTTOM),
        "rare_first": rare_before_frequent(scored, counted),
        "examples": examples,
        "glances": at_a_glance(
            (
                (
                    each.id,
                    ", ".join(name for name, _ in each.tags),
                    f"F1 {each.f1:.0f}",
                    each.f1 >= GOOD,
                )
                for each in examples
            ),
            frame.thumbnails,
        ),
    }
    model = settings_of(frame.lineage, TAGGER)
    facts = {"Concepts": f"{results.metrics['concepts']} ({model.get('concepts', 'tags')})"}
    scripts = ("search.js", "sort.js")
    return render_description("tags.html", results.name, model, values, frame, facts, scripts)


def _example(tagged: Tagged, true: set[str], concepts: Sequence[str], f1: float) -> TagExample:
    written = tagged.tags if tagged.tags is not None else tagged.top or []
    outcome = "hit" if f1 == 100 else "near" if f1 > 0 else "far"
    seen: list[tuple[str, float]] = []
    if tagged.probabilities is not None:
        named = zip(concepts, tagged.probabilities, strict=False)
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


def _cells(results: TagResults) -> list[tuple[str, list[tuple[str, str]], str]]:
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


def _dots(rows: Sequence[TagRow], positions: Mapping[str, float]) -> list[Dot]:
    """Return the tags that were written, by training frequency and mean position."""
    return [
        Dot(
            round(_x(row.training, rows), 1),
            round(_y(positions[row.name], positions), 1),
            f"{row.name}: {row.training} training images, mean position {positions[row.name]:.1f}",
        )
        for row in rows
        if row.name in positions and row.training
    ]


def _x(training: int, rows: Sequence[TagRow]) -> float:
    logs = [np.log10(row.training) for row in rows if row.training]
    low, high = min(logs), max(max(logs), min(logs) + 0.1)
    return float(LEFT + (RIGHT - LEFT) * (np.log10(training) - low) / (high - low))


def _y(position: float, positions: Mapping[str, float]) -> float:
    return TOP + (BOTTOM - TOP) * (position - 1) / (_deepest(positions) - 1)


def _x_ticks(rows: Sequence[TagRow]) -> list[tuple[float, str]]:
    numbers = sorted({row.training for row in rows if row.training})
    return [(round(_x(number, rows), 1), f"{number:,}") for number in (numbers[0], numbers[-1])]


def _y_ticks(positions: Mapping[str, float]) -> list[tuple[float, str]]:
    last = int(_deepest(positions))
    return [(round(_y(place, positions), 1), str(place)) for place in range(1, last + 1)]


def _deepest(positions: Mapping[str, float]) -> float:
    """Return the mean position at the bottom of the chart."""
    return max(2.0, *positions.values())
