"""`fne table`: the paper's tables with our results, and whether two runs differ."""

from pathlib import Path

from fne.core.errors import InputError
from fne.paper.comparison import ENOUGH_SEEDS, compare
from fne.paper.data import load
from fne.paper.grids import Grid
from fne.paper.project import RANKS, opened
from fne.paper.results import results_table, starts_table
from fne.paper.runs import Run
from fne.paper.tables import STARTS
from fne.ranking.intervals import LEVEL


def table(number: int, dataset: str | None) -> list[Grid]:
    """Return a table of the paper with the results of the project we are in."""
    with opened(Path()) as project:
        runs = list(project.runs())
    if number == STARTS:
        return starts_table(runs, dataset or load(f"table{number}")["dataset"])
    return results_table(number, runs)


def comparison(name_a: str, name_b: str) -> list[Grid]:
    """Return how two runs, each with all its seeds, differ in each metric.

    Raises:
        InputError: if the ranks of one are not here, or if they are of different test images.
    """
    with opened(Path()) as project:
        everything = list(project.runs())
        side_a, side_b = (_seeds_of(project.run(name), everything) for name in (name_a, name_b))
    if {run.kind for run in side_a} == {run.kind for run in side_b}:
        raise InputError(f"'{name_a}' and '{name_b}' differ in their seeds at most: they are one experiment")
    ranks_a, ranks_b = ([run.ranks for run in side if run.ranks] for side in (side_a, side_b))
    found = compare(ranks_a, ranks_b)
    rows = [
        [
            each.metric,
            f"{each.a:.1f}",
            f"{each.b:.1f}",
            f"{each.b - each.a:+.1f}",
            f"{each.low:+.1f} to {each.high:+.1f}",
            f"{each.p:.3f}",
            each.verdict,
        ]
        for each in found
    ]
    legend = (
        f"B - A, its {LEVEL:.0%} interval and p, over test images drawn again and again; with {ENOUGH_SEEDS} "
        "seeds or more on both sides, over the seeds as well"
    )
    title = f"A: {name_a} ({_count(side_a)}); B: {name_b} ({_count(side_b)})"
    return [Grid(title, ["metric", "A", "B", "B - A", "interval", "p", "verdict"], rows, legend=legend)]


def _seeds_of(run: Run, everything: list[Run]) -> list[Run]:
    """Return a run and those that equal it in all but the seed, each seed once, as far as ranks are here."""
    if run.ranks is None:
        raise InputError(
            f"'{run.name}': its {RANKS} is not in the cache; fetch it (`dvc fetch -A`) or run it again"
        )
    seeds = {run.seed: run}
    for other in everything:
        if other.kind == run.kind and other.ranks is not None:
            seeds.setdefault(other.seed, other)
    return list(seeds.values())


def _count(side: list[Run]) -> str:
    return f"{len(side)} seed{'s' if len(side) > 1 else ''}"
