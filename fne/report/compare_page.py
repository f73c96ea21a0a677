"""Two experiments side by side: what differs between them, what they score, and which queries moved.

`compare_runs` collects it from the recorded runs of a project, `grids` prints it, and `render` makes one
page of it that opens from disk and loads nothing. The statistics are those of `fne.experiments.compare`.
"""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fne.core.errors import InputError
from fne.core.terminal import printable
from fne.evaluation.intervals import LEVEL, Ranked
from fne.evaluation.metrics.recall import (
    RECALLS,
    chance_of_rsum,
    chosen_by,
    small_split_warning,
)
from fne.evaluation.paired import ENOUGH_SEEDS, Difference
from fne.experiments.compare import compare, ranked, seeds_of
from fne.experiments.grids import Grid
from fne.experiments.runs import (
    CAPTIONS,
    HISTORY,
    IMAGES,
    RESULT_SECTIONS,
    RecordedRuns,
    Run,
    is_tuned,
    read_or_warn,
)
from fne.report.charts import Chart, overlaid_curves, overlaid_recall
from fne.report.compare_descriptions import Change, Descriptions, compare_descriptions, grid
from fne.report.facts import flatten
from fne.report.frame import thumbnail
from fne.report.gallery import Candidate, best_matches
from fne.report.page import environment
from fne.report.sources import LOSS, RSUM, Direction, History, read_tables
from fne.store.arrays import Arrays
from fne.store.catalog import image_root, read_captions, read_images

GENERATOR = '<meta name="generator" content="fne compare">'
COLUMNS = ["metric", "A", "A interval", "B", "B interval", "B - A", "interval", "p", "verdict"]
MOVED = 5  # queries that are shown for each direction and side
FIRST = 5  # answers of each model that are shown for a query
LONGEST = 60  # characters of a sentence in a table
WAYS = {
    "image_to_text": ("images", "Sentences for images"),
    "text_to_image": ("sentences", "Images for sentences"),
}
CODE = ("fne/", "stages/")
NOT_RECORDED = "not recorded"


@dataclass(frozen=True)
class Side:
    """One of the two experiments: the run that was named, and all seeds whose ranks are known."""

    name: str
    run: Run
    seeds: list[Run]
    history: History

    @property
    def ranks(self) -> list[Arrays]:
        """The ranks of each seed, the named run first."""
        return [run.ranks for run in self.seeds if run.ranks is not None]

    @property
    def counted(self) -> str:
        """How many seeds there are, as text."""
        return f"{len(self.seeds)} seed{'s' if len(self.seeds) > 1 else ''}"


@dataclass(frozen=True)
class Mover:
    """A query whose rank differs between the two models."""

    query: str
    a: int  # its rank in A, from 1
    b: int
    answers: list[str]  # the ids of the true ones
    first: tuple[list[Candidate], list[Candidate]]  # the first answers of A, and of B; empty if not kept


@dataclass(frozen=True)
class Moves:
    """The queries of one direction that moved most: those that are better in B, and those in A."""

    way: str
    pool: int
    better_in_b: list[Mover]
    better_in_a: list[Mover]


@dataclass(frozen=True)
class Comparison:
    """Everything that is known about two experiments."""

    a: Side
    b: Side
    changes: list[Change]
    code: list[str]  # folders whose code differs
    differences: list[Difference]
    chance: float
    warning: str | None
    chosen: str | None  # a warning that the scored images chose the epoch
    moves: list[Moves]
    sentences: Mapping[str, str]  # caption id: text
    captions: Mapping[str, list[str]]  # image id: its captions
    pictures: Mapping[str, str]  # image id: data URI
    described: Sequence[Descriptions] = ()  # tags and captions, if both have some

    @property
    def title(self) -> str:
        """What is compared."""
        sides = zip("AB", (self.a, self.b), strict=True)
        return "; ".join(f"{letter}: {side.name} ({side.counted})" for letter, side in sides)

    @property
    def same_model(self) -> bool:
        """Whether the models that match images and sentences are of one experiment."""
        return self.a.run.experiment == self.b.run.experiment

    @property
    def can_be_shown(self) -> bool:
        """Whether there are enough seeds to call a side better."""
        return min(len(self.a.seeds), len(self.b.seeds)) >= ENOUGH_SEEDS


def compare_runs(
    project: RecordedRuns, name_a: str, name_b: str, moved: int = MOVED, pictures: bool = False
) -> Comparison:
    """Compare two runs of a project, experiments, revisions or `workspace`, each with all its seeds.

    Args:
        moved: how many queries to show for each direction and side.
        pictures: whether to read the pictures of these queries and their answers.
    """
    all_runs = list(project.runs())
    runs = project.run(name_a), project.run(name_b)
    sides = [
        Side(name, run, seeds_of(run, all_runs), _history(project, run))
        for name, run in zip((name_a, name_b), runs, strict=True)
    ]
    described = compare_descriptions(project, *runs, moved)
    if runs[0].experiment == runs[1].experiment and not described:
        raise InputError(
            f"'{name_a}' and '{name_b}' are the same experiment, except for the seed; name two different ones"
        )
    a, b = sides
    differences = compare(a.ranks, b.ranks)
    counts = _counts(ranked(a.ranks[0]))
    chance = float(np.mean([chance_of_rsum(each) for each in counts]))
    moves = [_moves(way, a.ranks[0], b.ranks[0], moved) for way in WAYS]
    sentences, captions = _captions(project, runs[0])
    return Comparison(
        a,
        b,
        [*changed_settings(*runs), *(change for each in described for change in each.changes)],
        changed_code(*runs),
        differences,
        chance,
        small_split_warning(len(counts[0]), chance, len(RECALLS)),
        chosen_by(runs[0].settings.get("evaluate", {}).get("split", "")),
        moves,
        sentences,
        captions,
        _pictures(project, runs[0], _shown_images(moves, described)) if pictures else {},
        described,
    )


def changed_settings(a: Run, b: Run) -> list[Change]:
    """Return the settings that apply and differ, and inputs that differ under the same name.

    One that no parameter file says is marked: the code of the two runs has other defaults.
    """
    changes = []
    for section in RESULT_SECTIONS:
        texts_a, texts_b = (flatten(run.settings.get(section, {})) for run in (a, b))
        for key in dict.fromkeys([*texts_a, *texts_b]):
            before, after = texts_a.get(key, "-"), texts_b.get(key, "-")
            if before != after:
                name = f"{section}.{key}"
                mark = "" if name in a.given | b.given else " (default)"
                changes.append(Change(f"{name}{mark}", before, after))
    return changes + [
        Change(f"content of {path}", a.hashes[path][:12], b.hashes[path][:12])
        for path in sorted(_inputs(a) & _inputs(b))
        if a.hashes[path] != b.hashes[path]
    ]


def changed_code(a: Run, b: Run) -> list[str]:
    """Return the folders and stages whose code differs between two runs."""
    both = a.hashes.keys() & b.hashes.keys()
    return sorted(path for path in both if path.startswith(CODE) and a.hashes[path] != b.hashes[path])


def grids(found: Comparison, moved: int = 3) -> list[Grid]:
    """Return a comparison as tables for the terminal."""
    legend = (
        f"{LEVEL:.0%} intervals and p over resampled test images; with {ENOUGH_SEEDS} seeds or more on both "
        f"sides, also over resampled seeds; by chance the rsum would be {found.chance:.1f}"
    )
    rows = [_metric_row(each) for each in found.differences]
    rows.append(_single_row("validation rsum", *(_validation(side) for side in (found.a, found.b))))
    rows.append(_single_row("closed form", *(side.run.baseline for side in (found.a, found.b))))
    notes = [f"Warning: {each}" for each in (found.warning, found.chosen) if each]
    if found.code:
        notes.append(f"the code differs in {', '.join(found.code)}")
    changes = [[each.key, each.a, each.b] for each in found.changes]
    settings = Grid("Settings that differ", ["setting", "A", "B"], changes, text_columns=3)
    described = [grid(each) for each in found.described]
    if found.same_model:
        return [replace(settings, legend=found.title), *described]
    tables = [settings, Grid(found.title, COLUMNS, rows, legend=legend, notes=notes), *described]
    for moves in found.moves:
        queries, _ = WAYS[moves.way]
        for side, listed in (("B", moves.better_in_b), ("A", moves.better_in_a)):
            lines = [
                [
                    _shorten(found.sentences.get(each.query, each.query)),
                    _shorten(_answer(found, each)),
                    str(each.a),
                    str(each.b),
                ]
                for each in listed[:moved]
            ]
            if lines:
                columns = [queries[:-1], "true answer", "rank in A", "rank in B"]
                title = f"{queries.capitalize()} that are better in {side}"
                tables.append(Grid(title, columns, lines, text_columns=2))
    return tables


def render(found: Comparison) -> str:
    """Return a comparison as one HTML page."""
    recall = {way: _recall_chart(found, way) for way in WAYS}
    sides = {"A": found.a, "B": found.b}
    return (
        environment()
        .get_template("compare.html")
        .render(
            found=found,
            ways=WAYS,
            level=LEVEL,
            enough=ENOUGH_SEEDS,
            rows=[_page_row(each) for each in found.differences],
            validation=[_validation(side) for side in (found.a, found.b)],
            baselines=[side.run.baseline for side in (found.a, found.b)],
            recall=recall,
            curves=overlaid_curves(found.a.history, found.b.history, (RSUM, LOSS)),
            tuned=" and ".join(name for name, side in sides.items() if is_tuned(side.run.settings)),
            not_recorded=NOT_RECORDED,
        )
    )


def is_page(head: bytes) -> bool:
    """Return whether `fne compare` wrote a file, given its beginning."""
    return GENERATOR.encode() in head


def _metric_row(each: Difference) -> list[str]:
    return [
        each.metric,
        f"{each.a:.1f}",
        _interval(each.a_interval),
        f"{each.b:.1f}",
        _interval(each.b_interval),
        f"{each.b - each.a:+.1f}",
        f"{each.low:+.1f} to {each.high:+.1f}",
        f"{each.p:.3f}",
        each.verdict,
    ]


def _single_row(name: str, a: float | None, b: float | None) -> list[str]:
    """Return a row of a metric without intervals."""
    texts = [NOT_RECORDED if each is None else f"{each:.1f}" for each in (a, b)]
    difference = "" if a is None or b is None else f"{b - a:+.1f}"
    return [name, texts[0], "", texts[1], "", difference, "", "", ""]


def _page_row(each: Difference) -> dict[str, Any]:
    way, _, metric = each.metric.rpartition(".")
    title = WAYS[way][1] if way else "Both directions"
    cells = _metric_row(each)
    better = each.verdict.partition(" ")[0] if each.verdict.endswith("better") else ""
    return {"way": title, "metric": metric.replace("_", " "), "cells": cells[1:], "better": better}


def _interval(bounds: tuple[float, float]) -> str:
    return f"{bounds[0]:.1f} to {bounds[1]:.1f}"


def _validation(side: Side) -> float | None:
    known = [run.validation for run in side.seeds if run.validation is not None]
    return float(np.mean(known)) if len(known) == len(side.seeds) else None


def _inputs(run: Run) -> set[str]:
    """Return the recorded inputs whose content no setting tells."""
    settings = run.settings
    named = [
        settings.get("extract", {}).get("weights"),
        settings.get("embed", {}).get("source"),
        settings.get("tokenize", {}).get("vectors"),
        CAPTIONS,
        IMAGES,
    ]
    # Activations that were extracted follow from the settings above.
    return {str(path) for path in named if path in run.hashes and path != "features/activations"}


def _history(project: RecordedRuns, run: Run) -> History:
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder)
        if not project.link_folder(run, HISTORY, target):
            return History({})
        return read_or_warn(lambda: read_tables(target), HISTORY) or History({})


def _captions(project: RecordedRuns, run: Run) -> tuple[dict[str, str], dict[str, list[str]]]:
    path = project.file(run, CAPTIONS)
    records = (read_or_warn(lambda: read_captions(path)[0], CAPTIONS) if path else None) or []
    sentences = {
        caption: text
        for record in records
        for caption, text in zip(record.caption_ids, record.captions, strict=True)
    }
    return sentences, {record.id: list(record.captions) for record in records}


def _pictures(project: RecordedRuns, run: Run, shown: set[str]) -> dict[str, str]:
    """Return the pictures of all images that are shown, as data URIs; missing ones are left out."""
    path = project.file(run, IMAGES)
    root = run.settings.get("catalog", {}).get("root")
    if path is None or root is None:
        return {}
    images = read_or_warn(lambda: read_images(path)[0], IMAGES) or []
    catalog = {image.id: image for image in images}
    found = {}
    for image_id in sorted(shown & catalog.keys()):
        image = catalog[image_id]
        try:
            found[image_id] = thumbnail(image_root(project.root / root) / image.path, image.sha256)
        except InputError:  # moved or changed since
            continue
    return found


def _shown_images(moves: Sequence[Moves], described: Sequence[Descriptions]) -> set[str]:
    shown = {pair.id for each in described for pair in each.pairs}
    for each in moves:
        for mover in (*each.better_in_a, *each.better_in_b):
            if each.way == "image_to_text":
                shown.add(mover.query)
            else:
                shown |= {*mover.answers, *(candidate.id for side in mover.first for candidate in side)}
    return shown


def _moves(way: str, ranks_a: Arrays, ranks_b: Arrays, count: int) -> Moves:
    a, b, caption_image = Direction.of(ranks_a, way), Direction.of(ranks_b, way), ranks_a["caption_image"]
    # From 40 to 1 is more than from 5,000 to 4,900.
    gain = np.log(a.ranks) - np.log(b.ranks)

    def mover(query: int) -> Mover:
        images = way == "image_to_text"
        true = np.flatnonzero(caption_image == query) if images else [caption_image[query]]
        return Mover(
            a.query_ids[query],
            int(a.ranks[query]),
            int(b.ranks[query]),
            [a.pool_ids[place] for place in true],
            (best_matches(a, query)[:FIRST], best_matches(b, query)[:FIRST]),
        )

    order = np.argsort(-gain, kind="stable")
    improved = [query for query in order.tolist() if gain[query] > 0][:count]
    worsened = [query for query in order[::-1].tolist() if gain[query] < 0][:count]
    return Moves(way, len(a.pool_ids), list(map(mover, improved)), list(map(mover, worsened)))


def _counts(found: Ranked) -> list[np.ndarray]:
    """Return how many captions each image has, per fold."""
    counts = np.bincount(found.caption_image, minlength=len(found.folds))
    return [counts[found.folds == fold] for fold in np.unique(found.folds)]


def _recall_chart(found: Comparison, way: str) -> Chart:
    kind = "image" if way == "image_to_text" else "caption"
    a, b = ([each[f"{kind}_ranks"] for each in side.ranks] for side in (found.a, found.b))
    return overlaid_recall(Direction.of(found.a.ranks[0], way), a, b)


def _answer(found: Comparison, mover: Mover) -> str:
    return found.sentences.get(mover.answers[0], mover.answers[0])


def _shorten(text: str) -> str:
    plain = printable(text)
    return plain if len(plain) <= LONGEST else f"{plain[: LONGEST - 1]}…"
