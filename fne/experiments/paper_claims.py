"""The claims of the paper, recomputed from its printed tables and from the runs of this project.

A claim says of pairs of rows that the second is better. The difference of a pair is the mean over its six
recalls, in points. For our own runs it comes with a paired interval over test images and seeds (see
`fne.evaluation.paired`), corrected for the number of pairs of the claim. It counts as shown only with enough
seeds.

Pairs of our runs that meet the conditions of the paper are shown beside the printed ones. Others, whose
weights, features or images may explain a difference, have lines of their own below, with a description.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fne.core.errors import InputError
from fne.evaluation.metrics.recall import RECALLS
from fne.evaluation.paired import ENOUGH_SEEDS
from fne.experiments.comparable import Origin, find_methods, matching_methods, origin
from fne.experiments.compare import compare
from fne.experiments.grids import Grid
from fne.experiments.presets import FNE, FOLLOWING, load, split_address
from fne.experiments.runs import RECALL_POSITIONS, Numbers, Run
from fne.experiments.tables import STARTS, group_by_experiment, load_table, printed_rows

COLUMNS = ["data set", "A", "B", "printed", "better", "ours", "interval", "seeds", "verdict"]
LEGEND = (
    "B - A, mean over the six recalls, in points; better: in how many recalls B is above A; ours: the same "
    "from our runs, with a 95 % interval that is corrected for the number of pairs of the claim; a side is "
    "called better if the interval excludes 0, with "
    f"{ENOUGH_SEEDS} seeds or more on both sides"
)
TABLES = ("2", "3", "4")  # tables of results
TASKS = ("annotation", "retrieval")  # the halves of these tables
NO_RUNS = "no runs"
NOT_SHOWN = "not shown"

Groups = dict[tuple[str, str, str], list[Run]]  # data set, following, model: runs of all seeds
# By the origin of their results; None: the runs that belong to rows of the paper.
ByOrigin = dict[Origin | None, Groups]


@dataclass(frozen=True)
class Own:
    """Our result for a pair: the difference, its interval, the seeds of both sides, and the verdict."""

    difference: float
    low: float
    high: float
    seeds: tuple[int, int]
    verdict: str


def claims_tables(runs: Iterable[Run]) -> list[Grid]:
    """Return a table for each claim, printed and ours: pairs, the gap, and how often MOE starts."""
    groups = groups_by_origin(runs)
    return [
        *(_claim(claim, groups) for claim in load("claims")["claims"]),
        _gap(groups[None]),
        _starts(groups),
    ]


def printed_difference(table: str, model_a: str, model_b: str) -> tuple[float, int]:
    """Return the printed difference of two rows, and in how many of the six recalls the second is better.

    Example:
        >>> difference, better = printed_difference("2", "FC7-SH", "FNE-SH")
        >>> round(difference, 2), better
        (2.4, 6)
    """
    found = {row.model: row.numbers for row in printed_rows(table)}
    before, after = (
        np.array([found[model][position] for position in RECALL_POSITIONS], dtype=float)
        for model in (model_a, model_b)
    )
    return float((after - before).mean()), int((after > before).sum())


def groups_by_origin(runs: Iterable[Run]) -> ByOrigin:
    """Return the runs of the paper's methods by data set, what they follow, and model.

    The data set of runs that belong to no row is the one whose settings they have; their images may differ.
    """
    found: ByOrigin = {None: {}}
    for group in group_by_experiment(runs):
        where, methods = None, [each for table in TABLES for each in find_methods(group[0], _dataset(table))]
        if not methods:
            where = origin(group[0])
            methods = [
                each for each in matching_methods(group[0].settings) if split_address(each.name)[0] == FNE
            ]
        for method in methods:
            key = method.dataset, method.following, method.name
            found.setdefault(where, {}).setdefault(key, group)
    return found


def own_difference(side_a: Sequence[Run], side_b: Sequence[Run], pairs: int = 1) -> Own | None:
    """Compare two groups of runs, one of so many pairs, or return None if their ranks are not available."""
    ranks_a, ranks_b = ([run.ranks for run in side if run.ranks] for side in (side_a, side_b))
    if not ranks_a or not ranks_b:
        return None
    try:
        found = next(each for each in compare(ranks_a, ranks_b, comparisons=pairs) if each.metric == "rsum")
    except InputError:  # other test images
        return None
    low, high = found.low / len(RECALL_POSITIONS), found.high / len(RECALL_POSITIONS)
    seeds = (len(ranks_a), len(ranks_b))
    shown = min(seeds) >= ENOUGH_SEEDS and not low <= 0 <= high
    better = "B is better" if low > 0 else "A is better"
    difference = (found.b - found.a) / len(RECALL_POSITIONS)
    return Own(difference, low, high, seeds, better if shown else NOT_SHOWN)


def _claim(claim: dict[str, Any], groups: ByOrigin) -> Grid:
    body: list[list[str]] = []
    pairs: list[list[str]] = claim["pairs"]
    for table in TABLES:
        printed = [printed_difference(table, *pair) for pair in pairs]
        cells = [[f"{difference:+.2f}", f"{better} of 6"] for difference, better in printed]
        differences = [difference for difference, _ in printed]
        mean = [f"{np.mean(differences):+.2f}", f"{sum(each > 0 for each in differences)} of {len(pairs)}"]
        found = [_own_of_pair(groups[None], _dataset(table), pair, len(pairs)) for pair in pairs]
        body += _pair_rows(_title(table), pairs, found, [*cells, mean], len(pairs))
    for where, own in groups.items():
        if where is not None:  # its pairs belong to no row of the paper
            datasets = list(dict.fromkeys(dataset for dataset, _, _ in own))
            known = [
                (pair, each) for pair in pairs if (each := _first_of_pair(own, datasets, pair, len(pairs)))
            ]
            if known:
                names, differing = zip(*known, strict=True)
                body += _pair_rows(where.text, names, differing, [["", ""]] * (len(known) + 1), len(pairs))
    return Grid(claim["title"], COLUMNS, body, text_columns=3, legend=LEGEND, notes=[claim["says"]])


def _pair_rows(
    title: str,
    pairs: Sequence[list[str]],
    found: Sequence[Own | None],
    printed: Sequence[list[str]],
    count: int,
) -> list[list[str]]:
    """Return a row per pair and one of their mean; `printed` has what the paper says in each of them."""
    own = [each.difference for each in found if each]
    mean = f"{np.mean(own):+.2f}" if len(own) == len(found) else ""
    rows = [
        [title, *pair, *cells, *_own_cells(each)]
        for pair, cells, each in zip(pairs, printed[:-1], found, strict=True)
    ]
    return [
        *rows,
        [title, "mean", "of pairs", *printed[-1], mean, "", "", f"{len(own)} of {count} pairs run"],
    ]


def _dataset(table: str) -> str:
    return str(load(f"table{table}")["dataset"])


def _title(table: str) -> str:
    return str(load("datasets")[_dataset(table)]["title"])


def _first_of_pair(groups: Groups, datasets: Iterable[str], pair: Sequence[str], pairs: int) -> Own | None:
    return next(filter(None, (_own_of_pair(groups, each, pair, pairs) for each in datasets)), None)


def _own_of_pair(groups: Groups, dataset: str, pair: Sequence[str], pairs: int) -> Own | None:
    """Compare our runs of one of so many pairs: both following the paper, otherwise both its code."""
    for following in FOLLOWING:
        sides = [groups.get((dataset, following, model)) for model in pair]
        if sides[0] and sides[1]:
            return own_difference(sides[0], sides[1], pairs)
    return None


def _own_cells(found: Own | None) -> list[str]:
    if found is None:
        return ["", "", "", NO_RUNS]
    interval = f"{found.low:+.2f} to {found.high:+.2f}"
    seeds = " and ".join(map(str, found.seeds))
    return [f"{found.difference:+.2f}", interval, seeds, found.verdict]


def printed_gap(table: str, models: Sequence[str], task: int) -> tuple[str, str, float]:
    """Return the best and the worst of some printed rows by the mean recall of a task, and their difference.

    Example:
        >>> best, worst, gap = printed_gap("4", ["FNE-SH", "FNE-MH", "FNE-POE"], task=1)
        >>> best, worst, round(gap, 2)
        ('FNE-POE', 'FNE-SH', 2.2)
    """
    numbers = {row.model: row.numbers for row in printed_rows(table)}
    return _best_and_worst({model: _mean_recall(numbers[model], task) for model in models})


def _best_and_worst(means: dict[str, float]) -> tuple[str, str, float]:
    best, worst = max(means, key=lambda model: means[model]), min(means, key=lambda model: means[model])
    return best, worst, means[best] - means[worst]


def _mean_recall(numbers: Numbers, task: int) -> float:
    chosen = RECALL_POSITIONS[task * len(RECALLS) : (task + 1) * len(RECALLS)]
    return float(np.mean([numbers[position] for position in chosen]))


def _gap(groups: Groups) -> Grid:
    claim, body = load("claims")["gap"], list[list[str]]()
    for table in TABLES:
        found = {model: _own_runs(groups, _dataset(table), model) for model in claim["models"]}
        gaps = []
        for task, name in enumerate(TASKS):
            best, worst, printed = printed_gap(table, claim["models"], task)
            gaps.append(printed)
            own = ["", "", NO_RUNS]
            if all(found.values()):
                means = {
                    model: float(np.mean([_mean_recall(run.results[0].numbers, task) for run in runs]))
                    for model, runs in found.items()
                }
                first, last, ours = _best_and_worst(means)
                own = [first, last, f"{ours:.2f}"]
            body.append([_title(table), name, best, worst, f"{printed:.2f}", *own])
        body.append([_title(table), "mean", "", "", f"{np.mean(gaps):.2f}", "", "", ""])
    columns = ["data set", "task", "best", "worst", "printed", "best of ours", "worst of ours", "ours"]
    return Grid(claim["title"], columns, body, text_columns=4, notes=[claim["says"]])


def _own_runs(groups: Groups, dataset: str, model: str) -> list[Run]:
    """Return our runs of a model that have results: those that follow the paper, or else its code."""
    found = ([run for run in groups.get((dataset, each, model), []) if run.results] for each in FOLLOWING)
    return next(filter(None, found), [])


def _starts(groups: ByOrigin) -> Grid:
    dataset, body = _dataset(STARTS), []
    for row in load_table(STARTS)["rows"]:
        for where, found in groups.items():
            datasets = [dataset] if where is None else dict.fromkeys(each for each, _, _ in found)
            own = next(filter(None, (_counted(found, each, row["model"]) for each in datasets)), "")
            if where is None:
                body.append([row["model"], f"{row['started']} of {row['runs']}", own or NO_RUNS])
            elif own:
                body.append([f"{row['model']}, {where.text}", "", own])
    says = "Whether MOE starts depends on settings and initialization; with the curriculum it always started."
    return Grid("How often MOE starts", ["model", "printed", "ours"], body, notes=[says])


def _counted(groups: Groups, dataset: str, model: str) -> str:
    """Return how many of our runs of a model started, by what they follow; empty without runs."""
    recorded = {
        each: [run.started for run in groups.get((dataset, each, model), []) if run.started is not None]
        for each in FOLLOWING
    }
    return "; ".join(f"{sum(own)} of {len(own)}, {following}" for following, own in recorded.items() if own)
