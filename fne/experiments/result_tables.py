"""The tables of the papers with the results of this project's runs.

A run that satisfies the rule of `fne.experiments.comparable` is listed below the printed row of its method.
All other runs are listed in a second table, with a description of each.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from fne.evaluation.metrics.recall import RECALLS, chance_of_rsum, small_split_warning
from fne.experiments.comparable import comparable_result, dataset_of, describe, find_methods, matching_methods
from fne.experiments.presets import load, preset, split_address
from fne.experiments.printed_tables import (
    STARTS,
    Grid,
    Numbers,
    PrintedRow,
    addresses,
    description_tables,
    load_table,
    rows,
    starts,
    sum_of_recalls,
    table_title,
)
from fne.experiments.runs import CAPTIONS, Result, Run, captions_per_image

COLUMNS = [
    *("model", "source"),
    *("a@1", "a@5", "a@10", "a med", "r@1", "r@5", "r@10", "r med", "rsum"),
    *("guess", "val", "seeds", "notes"),
]
LEGEND = (
    "a: annotation, sentences for an image; r: retrieval, images for a sentence; recalls in percent, median "
    "ranks; guess: the sum of recalls of guessing; val: the sum of validation recalls, by which runs are "
    "chosen; spread: standard deviation over seeds"
)
CHOSEN = "best by validation"
FEW_IMAGES = "few images, says little"
START_COLUMNS = ["model", "source", "learning rate", "margin", "absolute", "started", "runs", "notes"]
OTHERS = "Runs that belong to no printed row"
LIST_COLUMNS = ["table", "title", "data set", "rows", "presets"]

Group = list[Run]  # runs that differ only in the seed of the training


def group_by_experiment(runs: Iterable[Run]) -> list[Group]:
    """Group runs that differ only in their seed, with one run per seed."""
    groups: dict[str, dict[int | None, Run]] = {}
    # The first run of a group represents it, so runs of which more is known come first.
    for run in sorted(runs, key=lambda run: (run.ranks is None, run.counts is None)):
        groups.setdefault(run.experiment, {}).setdefault(run.seed, run)
    return [list(group.values()) for group in groups.values()]


def list_of_tables() -> list[Grid]:
    """Return the addresses of all tables, with how many rows each has and how many have presets."""
    body = []
    for address in addresses():
        paper, _ = split_address(address)
        table = load_table(address)
        if address == STARTS:
            counts = [len(starts())] * 2
        else:
            counts = [len(rows(address)), sum(row.is_paper_method for row in rows(address))]
        dataset = load("datasets", paper)[table["dataset"]]["title"]
        body.append([address, table["title"], dataset, *map(str, counts)])
    for address in description_tables():
        paper, _ = split_address(address)
        table = load_table(address)
        dataset = load("datasets", paper)[table["dataset"]]["title"]
        counts = [len(table["rows"]), sum("preset" in row for row in table["rows"])]
        body.append([address, table["title"], dataset, *map(str, counts)])
    return [Grid("Tables", LIST_COLUMNS, body, text_columns=3)]


def results_table(address: str, runs: Iterable[Run]) -> list[Grid]:
    """Return a table: each printed row, our results for it and their difference; then other runs."""
    table, (paper, _) = load_table(address), split_address(address)
    dataset, split = table["dataset"], table.get("split", "test")
    notes = _Notes()
    body: list[list[str]] = []
    groups = [(group, find_methods(group[0], dataset, paper, split)) for group in group_by_experiment(runs)]
    printed = rows(address)
    for row in printed:
        printed_cells = [*_cells(_with_sum(row.numbers)), _printed_chance(paper, dataset), "", ""]
        body.append([row.model, "paper", *printed_cells, notes.marks(row.notes)])
        for group, methods in groups if row.is_paper_method else []:
            following = next((each.following for each in methods if each.name == row.method), None)
            if following:
                found = [each for run in group if (each := comparable_result(run, dataset, paper, split))]
                needed = preset(row.method, dataset, following).notes
                body += _our_rows(row, f"ours, {following}", found, group, notes.marks(needed))
                body += _floor_rows(row.model, group)
    in_rows = {row.method for row in printed if row.is_paper_method}
    others = [group for group, methods in groups if not any(each.name in in_rows for each in methods)]
    # Runs on another data set of the paper belong to the table of that data set.
    shown = [group for group in others if dataset_of(group[0], paper) in (None, dataset)]
    chosen = best_by_validation(shown)
    shown.sort(key=lambda group: -(mean_validation(group) or 0.0))
    other_rows = [line for group in shown for line in _other_rows(group, group in chosen)]
    legend = "; ".join([LEGEND, *_how_recognized(paper, dataset)])
    grids = [Grid(table_title(address), COLUMNS, body, text_columns=2, legend=legend, notes=notes.texts)]
    return [*grids, Grid(OTHERS, COLUMNS, other_rows, text_columns=2)] if other_rows else grids


def starts_table(runs: Iterable[Run], dataset: str) -> list[Grid]:
    """Return Table 5: how many runs started, in the paper and here; then the same for runs on other data."""
    groups = group_by_experiment(runs)
    notes = _Notes()
    printed = load_table(STARTS)["dataset"]
    body, others = [], []
    for row in starts():
        settings = [str(row.learning_rate), str(row.margin), "yes" if row.absolute else "no"]
        printed_cells = [*settings, str(row.started), str(row.runs)]
        body.append([row.model, "paper", *printed_cells, notes.marks(row.notes)])
        for group in groups:
            methods = find_methods(group[0], printed)
            own = next((each.following for each in methods if each.name == row.model), None)
            if own:
                body.append([row.model, f"ours, {own}", *settings, *_started(group), ""])
                continue
            similar = [
                each for each in matching_methods(group[0].settings) if each.dataset in (printed, dataset)
            ]
            following = next((each.following for each in similar if each.name == row.model), None)
            if following:
                others.append([describe(group[0]), f"ours, {following}", *settings, *_started(group), ""])
    grids = [Grid(table_title(STARTS), START_COLUMNS, body, text_columns=2, notes=notes.texts)]
    return [*grids, Grid(OTHERS, START_COLUMNS, others, text_columns=2)] if others else grids


def _how_recognized(paper: str, dataset: str) -> list[str]:
    """Return a remark if the data set is recognized by counts only."""
    facts = load("datasets", paper)[dataset]
    if "unknown_split" in facts:
        return [facts["unknown_split"]]
    if "ids" in facts:
        return []
    return [f"{facts['title']} is recognized by its numbers of images: the lists of its splits are not known"]


def mean_validation(group: Group) -> float | None:
    """Return the mean sum of validation recalls over the seeds of an experiment, or None if it is unknown."""
    known = [run.validation for run in group if run.validation is not None]
    return float(np.mean(known)) if len(known) == len(group) else None


def best_by_validation(groups: Iterable[Group]) -> list[Group]:
    """Return the experiment with the best validation for each data set that has several experiments.

    The scored split serves to report what was chosen, never to choose.
    """
    by_data: dict[str | None, list[Group]] = {}
    for group in groups:
        if mean_validation(group) is not None:
            by_data.setdefault(group[0].hashes.get(CAPTIONS), []).append(group)
    several = [each for each in by_data.values() if len(each) > 1]
    return [max(each, key=lambda group: mean_validation(group) or 0.0) for each in several]


def _printed_chance(paper: str, dataset: str) -> str:
    scored = load("datasets", paper)[dataset].get("scored")
    if not scored:
        return ""
    counts = captions_per_image(scored["images"], sum(scored["captions"]) // 2)
    return f"{chance_of_rsum(counts):.1f}"


def _our_rows(
    row: PrintedRow, source: str, found: Sequence[Result], group: Group, marks: str
) -> list[list[str]]:
    pairs = zip(_summary(found)[0], _with_sum(row.numbers), strict=True)
    differences = tuple(None if a is None or b is None else a - b for a, b in pairs)
    return [
        *_means_and_spread(row.model, source, found, group, marks),
        [row.model, "difference", *_cells(differences, signed=True), "", "", "", ""],
    ]


def _means_and_spread(
    name: str, source: str, found: Sequence[Result], group: Group, marks: str = ""
) -> list[list[str]]:
    means, spread = _summary(found)
    validation, chance = mean_validation(group), found[0].chance
    beside = [f"{chance:.1f}", "-" if validation is None else f"{validation:.1f}", str(len(found))]
    lines = [[name, source, *_cells(means), *beside, marks]]
    return [*lines, [name, "spread", *_cells(spread), "", "", "", ""]] if spread else lines


def _other_rows(group: Group, chosen: bool) -> list[list[str]]:
    found = [run.results[0] for run in group if run.results]
    if not found:
        return []
    name, recalls = describe(group[0]), len(RECALLS)
    few = small_split_warning(found[0].images, found[0].chance, recalls) is not None
    marks = "; ".join([*[CHOSEN] * chosen, *[FEW_IMAGES] * few])
    return [*_means_and_spread(name, "ours", found, group, marks), *_floor_rows(name, group)]


def _floor_rows(name: str, group: Group) -> list[list[str]]:
    """Return the closed-form floor of a trained experiment, and whether the experiment stays below it."""
    floors = [run.floor for run in group if run.floor is not None]
    if not floors or group[0].settings.get("train", {}).get("method", "steps") != "steps":
        return []
    below = "below its floor" if any(run.is_below_floor for run in group) else ""
    return [[name, "closed form", *["-"] * 8, f"{floors[0]:.1f}", "", "", "", below]]


def _summary(found: Sequence[Result]) -> tuple[Numbers, Numbers | None]:
    """Return means over seeds, with the sum of recalls last, and standard deviations for several seeds."""
    values = np.array([_with_sum(each.numbers) for each in found], dtype=float)
    spread = _nan_to_none(values.std(axis=0, ddof=1)) if len(values) > 1 else None
    return _nan_to_none(values.mean(axis=0)), spread


def _nan_to_none(values: np.ndarray) -> Numbers:
    """Return numbers with None for metrics that a run did not compute."""
    return tuple(None if np.isnan(value) else float(value) for value in values)


def _with_sum(numbers: Numbers) -> Numbers:
    return (*numbers, sum_of_recalls(numbers))


def _cells(numbers: Numbers, signed: bool = False) -> list[str]:
    style = "+.1f" if signed else ".1f"
    # The printed median ranks are integers; means over seeds may not be.
    return [
        "-" if number is None else str(number) if isinstance(number, int) else format(number, style)
        for number in numbers
    ]


def _started(group: Group) -> list[str]:
    recorded = [run.started for run in group if run.started is not None]
    return [str(sum(recorded)) if recorded else "not recorded", str(len(recorded))]


class _Notes:
    """Footnotes, numbered in the order of their first use."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def marks(self, notes: Sequence[str]) -> str:
        """Return the footnote marks of notes, such as "[1][3]"."""
        self.texts += [note for note in notes if note not in self.texts]
        return "".join(f"[{self.texts.index(note) + 1}]" for note in notes)
