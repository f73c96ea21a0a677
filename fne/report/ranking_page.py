"""A ranking of three or more experiments, as a table for the terminal or as one page with a picture."""

from collections.abc import Sequence
from dataclasses import dataclass

from fne.core.errors import InputError
from fne.evaluation.intervals import LEVEL
from fne.evaluation.paired import ENOUGH_SEEDS
from fne.experiments.compare import seeds_of
from fne.experiments.grids import Grid
from fne.experiments.ranking import Ranking, rank_experiments
from fne.experiments.runs import RecordedRuns
from fne.report.interval_chart import Interval, Row, interval_chart
from fne.report.page import environment

COLUMNS = ["experiment", "rank", "group", "rsum", "interval", "seeds", "validation rsum"]


@dataclass(frozen=True)
class RankedRuns:
    """A ranking, with what is known of each experiment in the order in which they were named."""

    ranking: Ranking
    names: list[str]
    seeds: list[int]
    validations: list[float | None]

    @property
    def summary(self) -> str:
        """How many pairs are separated."""
        found = self.ranking
        return (
            f"{found.separated} of {found.pairs} pairs are separated at {LEVEL:.0%}, after Holm's correction"
        )

    @property
    def resampled(self) -> str:
        """What the bootstrap resamples, and what that leaves open."""
        if self.ranking.with_seeds:
            return "test images and seeds are resampled"
        return (
            f"test images are resampled, but not seeds: this ranks these training runs; for methods, train "
            f"{ENOUGH_SEEDS} seeds of each"
        )


def rank_runs(project: RecordedRuns, names: Sequence[str]) -> RankedRuns:
    """Rank experiments, revisions or `workspace` of a project, each with all its seeds."""
    all_runs = list(project.runs())
    runs = [project.run(name) for name in names]
    first: dict[str, str] = {}
    for name, run in zip(names, runs, strict=True):
        other = first.setdefault(run.experiment, name)
        if other is not name:
            raise InputError(
                f"'{other}' and '{name}' are the same experiment, except for the seed; name different ones"
            )
    groups = [seeds_of(run, all_runs) for run in runs]
    ranking = rank_experiments([[each.ranks for each in group if each.ranks is not None] for group in groups])
    return RankedRuns(
        ranking, list(names), [len(group) for group in groups], [run.validation for run in runs]
    )


def ranking_grids(found: RankedRuns) -> list[Grid]:
    """Return a ranking as a table, best first."""
    ranking = found.ranking
    rows = []
    for side in ranking.order:
        low, high = ranking.intervals[side]
        validation = found.validations[side]
        rows.append(
            [
                found.names[side],
                str(ranking.ranks[side]),
                ranking.letters(side),
                f"{ranking.rsums[side]:.1f}",
                f"{low:.1f} to {high:.1f}",
                str(found.seeds[side]),
                "-" if validation is None else f"{validation:.1f}",
            ]
        )
    legend = f"experiments with a common letter are not separated; {found.resampled}"
    return [Grid("Ranking with ties", COLUMNS, rows, legend=f"{found.summary}; {legend}")]


def render_ranking(found: RankedRuns) -> str:
    """Return a ranking as one HTML page."""
    ranking = found.ranking
    rows = [
        Row(
            f"{ranking.ranks[side]}. {found.names[side]}"[:32],
            [Interval(ranking.rsums[side], *ranking.intervals[side])],
        )
        for side in ranking.order
    ]
    [grid] = ranking_grids(found)
    chart = interval_chart("Sum of six recalls, with 95 % intervals", rows, ranking.groups, digits=1)
    return environment().get_template("ranking.html").render(found=found, grid=grid, chart=chart)
