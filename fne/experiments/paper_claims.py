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

import numpy as np

from fne.core.errors import InputError
from fne.evaluation.metrics.recall import RECALLS
from fne.evaluation.paired import ENOUGH_SEEDS
from fne.experiments.comparable import Origin, find_methods, matching_methods, origin
from fne.experiments.compare import compare
from fne.experiments.grids import Grid
from fne.experiments.presets import FNE, FOLLOWING, load, split_address
from fne.experiments.runs import RECALL_POSITIONS, Numbers, Run
from fne.experiments.tables import STARTS, group_by_experiment, printed_rows, printed_starts

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
Others = dict[Origin, Groups]  # the same for runs that belong to no row, by the origin of their results


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
    known = list(runs)
    groups, others = own_groups(known), other_groups(known)
    claims = [_claim(claim, groups, others) for claim in load("claims")["claims"]]
    return [*claims, _gap(groups), _starts(groups, others)]


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


def own_groups(runs: Iterable[Run]) -> Groups:
    """Return the runs that belong to rows of the paper, by data set, what they follow, and model."""
    groups: Groups = {}
    for group in group_by_experiment(runs):
        for dataset in _datasets():
            for method in find_methods(group[0], dataset):
                groups.setdefault((dataset, method.following, method.name), group)
    return groups


def other_groups(runs: Iterable[Run]) -> Others:
    """Return the runs of the paper's methods that belong to no row, by origin.

    The data set of a group is the one whose settings the runs have. Their images may be others.
    """
    others: Others = {}
    for group in group_by_experiment(runs):
        if any(find_methods(group[0], dataset) for dataset in _datasets()):
            continue
        for method in matching_methods(group[0].settings):
            if split_address(method.name)[0] == FNE:
                groups = others.setdefault(origin(group[0]), {})
                groups.setdefault((method.dataset, method.following, method.name), group)
    return others


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


def _claim(claim: dict[str, list[list[str]]], groups: Groups, others: Others) -> Grid:
    body: list[list[str]] = []
    for table in TABLES:
        dataset, title = load(f"table{table}")["dataset"], load("datasets")[load(f"table{table}")["dataset"]]
        printed, own = [], list[float]()
        for model_a, model_b in claim["pairs"]:
            difference, better = printed_difference(table, model_a, model_b)
            printed.append(difference)
            cells = [title["title"], model_a, model_b, f"{difference:+.2f}", f"{better} of 6"]
            found = _own_of_pair(groups, dataset, model_a, model_b, len(claim["pairs"]))
            if found:
                own.append(found.difference)
            body.append([*cells, *_own_cells(found)])
        mean = f"{np.mean(own):+.2f}" if len(own) == len(printed) else ""
        counted = f"{sum(value > 0 for value in printed)} of {len(printed)}"
        body.append(
            [
                title["title"],
                "mean",
                "of pairs",
                f"{np.mean(printed):+.2f}",
                counted,
                mean,
                "",
                "",
                _of(own, printed),
            ]
        )
    body += _other_pairs(claim["pairs"], others)
    return Grid(str(claim["title"]), COLUMNS, body, text_columns=3, legend=LEGEND, notes=[str(claim["says"])])


def _other_pairs(pairs: Sequence[Sequence[str]], others: Others) -> list[list[str]]:
    """Return the pairs of our runs that belong to no row of the paper, and their mean for each origin."""
    body: list[list[str]] = []
    for where, groups in others.items():
        datasets = list(dict.fromkeys(dataset for dataset, _, _ in groups))
        counted = []
        for model_a, model_b in pairs:
            found = (_own_of_pair(groups, dataset, model_a, model_b, len(pairs)) for dataset in datasets)
            own = next((each for each in found if each), None)
            if own:
                counted.append(own.difference)
                body.append([where.text, model_a, model_b, "", "", *_own_cells(own)])
        if counted:
            mean = f"{np.mean(counted):+.2f}"
            body.append([where.text, "mean", "of pairs", "", "", mean, "", "", _of(counted, pairs)])
    return body


def _datasets() -> list[str]:
    return [load(f"table{table}")["dataset"] for table in TABLES]


def _own_of_pair(groups: Groups, dataset: str, model_a: str, model_b: str, pairs: int) -> Own | None:
    """Compare our runs of one of so many pairs: both following the paper, otherwise both its code."""
    for following in FOLLOWING:
        sides = [groups.get((dataset, following, model)) for model in (model_a, model_b)]
        if sides[0] and sides[1]:
            return own_difference(sides[0], sides[1], pairs)
    return None


def _own_cells(found: Own | None) -> list[str]:
    if found is None:
        return ["", "", "", NO_RUNS]
    interval = f"{found.low:+.2f} to {found.high:+.2f}"
    seeds = " and ".join(map(str, found.seeds))
    return [f"{found.difference:+.2f}", interval, seeds, found.verdict]


def _of(own: Sequence[float], pairs: Sequence[object]) -> str:
    return f"{len(own)} of {len(pairs)} pairs run"


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
        dataset = load(f"table{table}")["dataset"]
        title, gaps = load("datasets")[dataset]["title"], []
        found = {model: _own_runs(groups, dataset, model) for model in claim["models"]}
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
            body.append([title, name, best, worst, f"{printed:.2f}", *own])
        body.append([title, "mean", "", "", f"{np.mean(gaps):.2f}", "", "", ""])
    columns = ["data set", "task", "best", "worst", "printed", "best of ours", "worst of ours", "ours"]
    return Grid(claim["title"], columns, body, text_columns=4, notes=[str(claim["says"])])


def _own_runs(groups: Groups, dataset: str, model: str) -> list[Run]:
    """Return our runs of a model that have results: those that follow the paper, or else its code."""
    found = ([run for run in groups.get((dataset, each, model), []) if run.results] for each in FOLLOWING)
    return next(filter(None, found), [])


def _starts(groups: Groups, others: Others) -> Grid:
    dataset = load(f"table{STARTS}")["dataset"]
    body = []
    for row in printed_starts():
        body.append(
            [row.model, f"{row.started} of {row.runs}", _counted(groups, dataset, row.model) or NO_RUNS]
        )
        for where, found in others.items():
            datasets = dict.fromkeys(dataset for dataset, _, _ in found)
            counted = next(filter(None, (_counted(found, each, row.model) for each in datasets)), "")
            body += [[f"{row.model}, {where.text}", "", counted]] * bool(counted)
    says = "Whether MOE starts depends on settings and initialization; with the curriculum it always started."
    return Grid("How often MOE starts", ["model", "printed", "ours"], body, notes=[says])


def _counted(groups: Groups, dataset: str, model: str) -> str:
    """Return how many of our runs of a model started, by what they follow; empty without runs."""
    return "; ".join(
        f"{sum(recorded)} of {len(recorded)}, {following}"
        for following in FOLLOWING
        if (recorded := _recorded_starts(groups.get((dataset, following, model), [])))
    )


def _recorded_starts(runs: Sequence[Run]) -> list[bool]:
    return [run.started for run in runs if run.started is not None]
