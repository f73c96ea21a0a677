"""Tables 2 to 5 with our results in and below them."""

from collections.abc import Iterable, Sequence

import numpy as np

from fne.paper.data import load
from fne.paper.grids import Grid
from fne.paper.measured import Measured
from fne.paper.rule import belongs, dataset_of, described, methods, result
from fne.paper.runs import Run
from fne.paper.tables import Numbers, Row, rows, starts, sum_of_recalls

COLUMNS = [
    *("model", "source"),
    *("a@1", "a@5", "a@10", "a med", "r@1", "r@5", "r@10", "r med", "rsum"),
    *("seeds", "notes"),
]
LEGEND = (
    "a: annotation, sentences for an image; r: retrieval, images for a sentence; recalls in percent, median "
    "ranks; spread: standard deviation over seeds"
)
START_COLUMNS = ["model", "source", "learning rate", "margin", "absolute", "started", "runs", "notes"]
OTHERS = "Runs that are not the paper's experiments"

Group = list[Run]  # runs that differ in the seed of the training alone


def grouped(runs: Iterable[Run]) -> list[Group]:
    """Put runs together that differ in their seed alone; the same seed counts once."""
    groups: dict[str, dict[int | None, Run]] = {}
    # Runs of which more is known come first: the first one of a group stands for all.
    for run in sorted(runs, key=lambda run: (run.ranks is None, run.counts is None)):
        groups.setdefault(run.kind, {}).setdefault(run.seed, run)
    return [list(group.values()) for group in groups.values()]


def results_table(number: int, runs: Iterable[Run]) -> list[Grid]:
    """Return Table 2, 3 or 4: each printed row, our result in it and the difference, then other runs."""
    table = load(f"table{number}")
    notes = _Notes()
    body: list[list[str]] = []
    others = grouped(runs)
    for row in rows(number):
        body.append([row.model, "paper", *_cells(_with_sum(row.numbers)), "", notes.marks(row.notes)])
        for group in list(others) if row.is_ours_to_run else []:
            method = belongs(group[0], table["dataset"])
            if method and method.name == row.model:
                found = [each for run in group if (each := result(run, table["dataset"]))]
                body += _ours(row, f"ours, {method.following}", found)
                others.remove(group)
    elsewhere = [group for group in others if dataset_of(group[0]) not in (None, table["dataset"])]
    own = [line for group in others if group not in elsewhere for line in _own_rows(group)]
    title = f"Table {number}: {table['title']}"
    grids = [Grid(title, COLUMNS, body, names=2, legend=LEGEND, notes=notes.texts)]
    return [*grids, Grid(OTHERS, COLUMNS, own, names=2)] if own else grids


def starts_table(runs: Iterable[Run], dataset: str) -> list[Grid]:
    """Return Table 5: how many runs started, beside the paper's; then the same of runs on other data."""
    groups = grouped(runs)
    notes = _Notes()
    printed = load("table5")["dataset"]
    body, others = [], []
    for row in starts():
        settings = [str(row.learning_rate), str(row.margin), "yes" if row.absolute else "no"]
        printed_cells = [*settings, str(row.started), str(row.runs)]
        body.append([row.model, "paper", *printed_cells, notes.marks(row.notes)])
        for group in groups:
            method = belongs(group[0], printed)
            if method and method.name == row.model:
                body.append([row.model, f"ours, {method.following}", *settings, *_started(group), ""])
                continue
            similar = [each for each in methods(group[0].settings) if each.dataset in (printed, dataset)]
            if any(each.name == row.model for each in similar):
                following = next(each.following for each in similar if each.name == row.model)
                others.append([described(group[0]), f"ours, {following}", *settings, *_started(group), ""])
    title = f"Table 5: {load('table5')['title']}"
    grids = [Grid(title, START_COLUMNS, body, names=2, notes=notes.texts)]
    return [*grids, Grid(OTHERS, START_COLUMNS, others, names=2)] if others else grids


def _ours(row: Row, source: str, found: Sequence[Measured]) -> list[list[str]]:
    pairs = zip(_summary(found)[0], _with_sum(row.numbers), strict=True)
    differences = tuple(None if a is None or b is None else a - b for a, b in pairs)
    return [
        *_means_and_spread(row.model, source, found),
        [row.model, "difference", *_cells(differences, signed=True), "", ""],
    ]


def _means_and_spread(name: str, source: str, found: Sequence[Measured]) -> list[list[str]]:
    means, spread = _summary(found)
    lines = [[name, source, *_cells(means), str(len(found)), ""]]
    return [*lines, [name, "spread", *_cells(spread), "", ""]] if spread else lines


def _own_rows(group: Group) -> list[list[str]]:
    found = [run.measured[0] for run in group if run.measured]
    return _means_and_spread(described(group[0]), "ours", found) if found else []


def _summary(found: Sequence[Measured]) -> tuple[Numbers, Numbers | None]:
    """Return means over seeds, the sum of recalls last, and standard deviations if there are several."""
    values = np.array([_with_sum(each.numbers) for each in found], dtype=float)
    spread = _known(values.std(axis=0, ddof=1)) if len(values) > 1 else None
    return _known(values.mean(axis=0)), spread


def _known(values: np.ndarray) -> Numbers:
    """Return numbers with None where a run did not measure them."""
    return tuple(None if np.isnan(value) else float(value) for value in values)


def _with_sum(numbers: Numbers) -> Numbers:
    return (*numbers, sum_of_recalls(numbers))


def _cells(numbers: Numbers, signed: bool = False) -> list[str]:
    style = "+.1f" if signed else ".1f"
    # The printed median ranks are whole numbers; means of ours need not be.
    return [
        "-" if number is None else str(number) if isinstance(number, int) else format(number, style)
        for number in numbers
    ]


def _started(group: Group) -> list[str]:
    known = [run.started for run in group if run.started is not None]
    return [str(sum(known)) if known else "not recorded", str(len(known))]


class _Notes:
    """Footnotes, numbered as they come up."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def marks(self, notes: Sequence[str]) -> str:
        """Return the numbers of notes."""
        self.texts += [note for note in notes if note not in self.texts]
        return "".join(f"[{self.texts.index(note) + 1}]" for note in notes)
