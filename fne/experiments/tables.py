"""The tables of the papers, as printed and with the results of this project's runs.

Tables of the FNE paper are addressed by their number (`2`), those of other papers by the paper and the
number (`two-branch/1`), or the data set of a table without one (`dual-path/coco`).

A run that satisfies the rule of `fne.experiments.comparable` is listed below the printed row of its method.
All other runs are listed in a second table, with a description of each. Tables about tags and captions have
columns of their own. Their papers fine-tune the network or use data that is not available, so no result of
this project appears in their rows.
"""

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from statistics import fmean
from typing import Any, TypeVar

import numpy as np

from fne.core.errors import InputError
from fne.core.settings import flattened
from fne.evaluation.metrics.recall import RECALLS, chance_of_rsum, small_split_warning
from fne.experiments.comparable import (
    comparable_result,
    dataset_of,
    describe,
    find_methods,
    matching_methods,
)
from fne.experiments.compare import comparable_digests
from fne.experiments.grids import GENERATOR, Cells, Footnotes, Grid
from fne.experiments.presets import FNE, FOLDER, Preset, description_papers, load, papers, split_address
from fne.experiments.ranking import rank_experiments
from fne.experiments.runs import (
    CAPTIONS,
    DIRECTIONS,
    METRIC_KEYS,
    RECALL_POSITIONS,
    DescribedRun,
    Numbers,
    RecordedRuns,
    Result,
    Run,
    captions_per_image,
    parse_results,
    split_counts,
    split_digests,
    sum_of_recalls,
)
from fne.store.arrays import Arrays
from fne.store.artifact import Artifact
from fne.store.catalog import Captioned

STARTS = "5"  # the table of how many training runs started
NOT_RESULTS = {(FNE, "1")}  # its Table 1 has the settings of the methods
COLUMNS = [
    *("model", "source"),
    *("a@1", "a@5", "a@10", "a med", "r@1", "r@5", "r@10", "r med", "rsum"),
    *("chance", "val", "seeds", "notes"),
]
LEGEND = (
    "a: annotation, sentences for an image; r: retrieval, images for a sentence; recalls in percent, median "
    "ranks; chance: the sum of recalls by chance; val: the sum of validation recalls, by which runs are "
    "chosen; spread: standard deviation over seeds"
)
EMPHASIS = (
    "bold (*): the best of the state of the art, and of the paper's own; underlined (_): the better one of "
    "FC7 and FNE, as the paper's captions say"
)
CHOSEN = "best by validation"
TIED = "tie: runs with a common letter are not separated by these test images (see `fne compare`)"
FEW_IMAGES = "few images, says little"
START_COLUMNS = ["model", "source", "learning rate", "margin", "absolute", "started", "runs", "notes"]
OTHERS = "Runs that belong to no printed row"
DESCRIBED = "Runs of this project"
LIST_COLUMNS = ["table", "title", "data set", "rows", "presets"]
TITLE = re.compile(r"(?:[a-z-]+, )?Table [0-9a-z]+: .*")
# The section of params.yaml that each pipeline of descriptions trains by.
TRAINED_BY = {"captioning": "train_captioner", "tagging": "train_tagger"}
# The sections of params.yaml that a method of a paper sets, and the artifacts that record them.
SECTION_ARTIFACTS = {
    "extract": "activations",
    "embed": "embeddings",
    "tokenize": "tokens",
    "train": "model",
    "finetune": "tuned",
}


# A run that may have been repeated with other seeds.
AnyRun = TypeVar("AnyRun", Run, DescribedRun)
Group = list[Run]  # runs that differ only in the seed of the training


@dataclass(frozen=True)
class PrintedRow:
    """A row of a table of results; None where the paper prints nothing."""

    model: str
    method: str  # the address of its preset, if there is one
    numbers: Numbers
    notes: list[str]
    is_paper_method: bool  # with a preset; neither quoted from elsewhere, nor one that nobody can fill


@dataclass(frozen=True)
class PaperRow:
    """The row of the paper with the same settings as a run: `figures[direction][metric]`."""

    source: str
    notes: list[str]
    figures: Mapping[str, Mapping[str, float]]


@cache
def addresses() -> list[str]:
    """Return the addresses of all tables that hold results, in the order of the papers."""
    found = []
    for paper in (*papers(), *description_papers()):
        numbers = sorted(path.stem.removeprefix("table") for path in (FOLDER / paper).glob("table*.yaml"))
        prefix = "" if paper == FNE else f"{paper}/"
        found += [f"{prefix}{number}" for number in numbers if (paper, number) not in NOT_RESULTS]
    return found


def is_described(address: str) -> bool:
    """Return whether a table is about descriptions of images, not about retrieval."""
    return split_address(address)[0] in description_papers()


def check_address(address: str) -> None:
    """Refuse the address of a table that does not exist, with the closest one."""
    if address not in addresses():
        [close] = get_close_matches(address, addresses(), n=1, cutoff=0)
        raise InputError(f"there is no table '{address}' (did you mean '{close}'?); see `fne table --list`")


def load_table(address: str) -> dict[str, Any]:
    """Return the file of a table."""
    paper, number = split_address(address)
    return load(f"table{number}", paper)


def table_title(address: str) -> str:
    """Return the title of a table, with its paper if that is not the FNE paper."""
    paper, number = split_address(address)
    title = f"Table {number}: {load_table(address)['title']}"
    return title if paper == FNE else f"{paper}, {title}"


def printed_rows(address: str) -> list[PrintedRow]:
    """Return the rows of a table of results, in the order of the paper."""
    table, (paper, _) = load_table(address), split_address(address)
    texts, described = table["notes"] | table["errata"], is_described(address)
    return [
        PrintedRow(
            row["model"],
            f"{paper}/{row['preset']}" if "preset" in row else row["model"],
            _floats(row["numbers"]) if described else _with_medians(row["annotation"], row["retrieval"]),
            [texts[note] for note in (*row.get("notes", []), *row.get("errata", []))],
            "preset" in row if described else row["group"] == "paper" and row.get("fill", True),
        )
        for row in table["rows"]
    ]


def find_paper_row(metrics: bytes, ranks: Artifact, captioned: Iterable[Captioned]) -> PaperRow | None:
    """Return what a paper printed for the same experiment as an evaluation, or None.

    `metrics` is the content of the metrics file; the lineage of `ranks` records what was run.
    """
    records = list(captioned)
    recorded = {name: entry.get("settings", {}) for name, entry in ranks.lineage.items()}
    settings = {
        section: flattened(recorded.get(artifact, {})) for section, artifact in SECTION_ARTIFACTS.items()
    }
    if "vector_file" in recorded:
        settings["tokenize"]["vectors"] = recorded["vector_file"]["file"]
    run = Run(
        name=ranks.name,
        settings=settings,
        results=parse_results(metrics),
        started=None,
        hashes={},
        ranks=Arrays(ranks, {}),
        counts=split_counts(records),
        split_digests=split_digests(records),
    )
    for address in addresses():
        if address == STARTS or is_described(address):
            continue
        methods = find_methods(run, load_table(address)["dataset"], split_address(address)[0])
        for row in printed_rows(address) if methods else []:
            if row.is_paper_method and row.method == methods[0].name:
                return _paper_row(address, methods[0], row)
    return None


def list_of_tables() -> list[Grid]:
    """Return the addresses of all tables, with how many rows each has and how many have presets."""
    body = []
    for address in addresses():
        table = load_table(address)
        if address == STARTS:
            counts = [len(table["rows"])] * 2
        else:
            printed = printed_rows(address)
            counts = [len(printed), sum(row.is_paper_method for row in printed)]
        dataset = load("datasets", split_address(address)[0])[table["dataset"]]["title"]
        body.append([address, table["title"], dataset, *map(str, counts)])
    return [Grid("Tables", LIST_COLUMNS, body, text_columns=3)]


def table_grids(address: str, project: RecordedRuns, dataset: str | None = None) -> list[Grid]:
    """Return a table with the results of a project; of Table 5, also those on another data set."""
    table = load_table(address)
    if is_described(address):
        section = TRAINED_BY[table["pipeline"]]
        return description_table(address, project.described_runs(table["metrics_file"], section))
    if address == STARTS:
        return starts_table(project.runs(), dataset or table["dataset"])
    return results_table(address, project.runs())


def is_table(head: bytes) -> bool:
    """Return whether `fne table` wrote a file in any of its formats, given its beginning."""
    text = head.decode(errors="replace")
    first = text.partition("\n")[0]
    is_csv = first.startswith("model,source,")
    return GENERATOR in text or is_csv or TITLE.fullmatch(first.strip("*")) is not None


def results_table(address: str, runs: Iterable[Run]) -> list[Grid]:
    """Return a table: each printed row, our results for it and their difference; then other runs."""
    table, (paper, _) = load_table(address), split_address(address)
    dataset, split = table["dataset"], table.get("split", "test")
    notes, chance = Footnotes(), _printed_chance(paper, dataset)
    groups = [(group, find_methods(group[0], dataset, paper, split)) for group in group_by_experiment(runs)]
    printed = printed_rows(address)
    body: list[list[str]] = []
    places: dict[str, int] = {}  # the line of each printed row
    for row in printed:
        places[row.model] = len(body)
        cells = [*_cells(_with_sum(row.numbers)), chance, "", ""]
        body.append([row.model, "paper", *cells, notes.marks(row.notes)])
        for group, methods in groups if row.is_paper_method else []:
            method = next((each for each in methods if each.name == row.method), None)
            if method:
                found = [each for run in group if (each := comparable_result(run, dataset, paper, split))]
                body += _our_rows(row, f"ours, {method.following}", found, group, notes.marks(method.notes))
                body += _baseline_rows(row.model, group)
    in_rows = {row.method for row in printed if row.is_paper_method}
    others = [group for group, methods in groups if not any(each.name in in_rows for each in methods)]
    # Runs on another data set of the paper belong to the table of that data set.
    shown = [group for group in others if dataset_of(group[0], paper) in (None, dataset)]
    marks = _emphasis(table["rows"], printed, places) if paper == FNE else {}
    legend = "; ".join([LEGEND, *[EMPHASIS] * bool(marks), *_how_recognized(paper, dataset)])
    grid = Grid(table_title(address), COLUMNS, body, 2, legend, notes.texts, **marks)
    tied = _ties(shown)
    grids = _with_others(grid, OTHERS, _other_rows(shown, tied))
    return [*grids[:-1], replace(grids[-1], legend=TIED)] if tied else grids


def _emphasis(
    rows: Sequence[Mapping[str, Any]], printed: Sequence[PrintedRow], places: Mapping[str, int]
) -> dict[str, Cells]:
    """Return the cells that the FNE paper prints bold or underlines, given the row of each model."""
    numbers = {row.model: row.numbers for row in printed}
    own, earlier = ({row["model"] for row in rows if row["group"] == group} for group in ("paper", "sota"))
    pairs = [{model, f"FNE-{model.removeprefix('FC7-')}"} for model in own if model.startswith("FC7-")]
    bold = _best_cells(numbers, own, places) | _best_cells(numbers, earlier, places)
    underlined = [_best_cells(numbers, pair, places) for pair in pairs]
    return {"bold": bold, "underlined": frozenset().union(*underlined)}


def _best_cells(numbers: Mapping[str, Numbers], models: Set[str], places: Mapping[str, int]) -> Cells:
    """Return the best cell of some models in each column: the highest recall, the lowest median rank."""
    found = set()
    for column in range(len(METRIC_KEYS) * len(DIRECTIONS)):
        values = {model: value for model in models if (value := numbers[model][column]) is not None}
        best = max if column in RECALL_POSITIONS else min
        found |= {(places[model], column + 2) for model in values if values[model] == best(values.values())}
    return frozenset(found)


def starts_table(runs: Iterable[Run], dataset: str) -> list[Grid]:
    """Return Table 5: how many runs started, in the paper and here; then the same for runs on other data."""
    groups, table, notes = group_by_experiment(runs), load_table(STARTS), Footnotes()
    printed, body, others = table["dataset"], [], []
    for row in table["rows"]:
        model, marks = row["model"], notes.marks([table["errata"][note] for note in row.get("errata", [])])
        settings = [str(row["learning_rate"]), str(row["margin"]), "yes" if row["absolute"] else "no"]
        body.append([model, "paper", *settings, str(row["started"]), str(row["runs"]), marks])
        for group in groups:
            own = _following(find_methods(group[0], printed), model)
            if own:
                body.append([model, f"ours, {own}", *settings, *_started(group), ""])
                continue
            matching = matching_methods(group[0].settings)
            similar = _following((each for each in matching if each.dataset in (printed, dataset)), model)
            if similar:
                others.append([describe(group[0]), f"ours, {similar}", *settings, *_started(group), ""])
    grid = Grid(table_title(STARTS), START_COLUMNS, body, text_columns=2, notes=notes.texts)
    return _with_others(grid, OTHERS, others)


def description_table(address: str, runs: Iterable[DescribedRun]) -> list[Grid]:
    """Return a table as printed, and below it a row for each own run and answer, with means over seeds."""
    table = load_table(address)
    columns, style = ["model", "source", *table["columns"], "seeds", "notes"], f".{table['digits']}f"
    notes = Footnotes()
    body = [
        [row.model, "paper", *_cells(row.numbers, style), "", notes.marks(row.notes)]
        for row in printed_rows(address)
    ]
    legend = " ".join(table["legend"].split())
    grid = Grid(table_title(address), columns, body, text_columns=2, legend=legend, notes=notes.texts)
    own = [line for group in _groups(runs) for line in _described_rows(group, table["metrics"], style)]
    return _with_others(grid, DESCRIBED, own)


def group_by_experiment(runs: Iterable[Run]) -> list[Group]:
    """Group runs that differ only in their seed, with one run per seed."""
    # The first run of a group represents it, so runs of which more is known come first.
    return _groups(sorted(runs, key=lambda run: (run.ranks is None, run.counts is None)))


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


def _groups(runs: Iterable[AnyRun]) -> list[list[AnyRun]]:
    groups: dict[str, dict[int | None, AnyRun]] = {}
    for run in runs:
        groups.setdefault(run.experiment, {}).setdefault(run.seed, run)
    return [list(group.values()) for group in groups.values()]


def _with_others(grid: Grid, title: str, others: list[list[str]]) -> list[Grid]:
    """Return a table and, where there are any, the runs that belong to none of its rows."""
    return [grid, Grid(title, grid.columns, others, grid.text_columns)] if others else [grid]


def _following(methods: Iterable[Preset], name: str) -> str | None:
    """Return what the first method of a name follows: the paper, or its code."""
    return next((each.following for each in methods if each.name == name), None)


def _how_recognized(paper: str, dataset: str) -> list[str]:
    """Return a remark if the data set is recognized by counts only."""
    facts = load("datasets", paper)[dataset]
    if "unknown_split" in facts:
        return [facts["unknown_split"]]
    if "ids" in facts:
        return []
    return [f"{facts['title']} is recognized by its numbers of images: the lists of its splits are not known"]


def _printed_chance(paper: str, dataset: str) -> str:
    scored = load("datasets", paper)[dataset].get("scored")
    if not scored:
        return ""
    counts = captions_per_image(scored["images"], sum(scored["captions"]) // 2)
    return f"{chance_of_rsum(counts):.1f}"


def _paper_row(address: str, method: Preset, row: PrintedRow) -> PaperRow:
    table, _, subject = table_title(address).partition(": ")
    source = f"{row.model} in {table} ({subject}), settings following the {method.following}"
    halves = row.numbers[: len(METRIC_KEYS)], row.numbers[len(METRIC_KEYS) :]
    figures = {
        direction: {key: value for key, value in zip(METRIC_KEYS, half, strict=True) if value is not None}
        for direction, half in zip(DIRECTIONS, halves, strict=True)
    }
    return PaperRow(source, [*row.notes], figures)


def _our_rows(
    row: PrintedRow, source: str, found: Sequence[Result], group: Group, marks: str
) -> list[list[str]]:
    pairs = zip(_summary(found)[0], _with_sum(row.numbers), strict=True)
    differences = tuple(None if a is None or b is None else a - b for a, b in pairs)
    return [
        *_means_and_spread(row.model, source, found, group, marks),
        [row.model, "difference", *_cells(differences, "+.1f"), "", "", "", ""],
    ]


def _means_and_spread(
    name: str, source: str, found: Sequence[Result], group: Group, marks: str
) -> list[list[str]]:
    means, spread = _summary(found)
    validation, chance = mean_validation(group), found[0].chance
    beside = [f"{chance:.1f}", "-" if validation is None else f"{validation:.1f}", str(len(found))]
    lines = [[name, source, *_cells(means), *beside, marks]]
    return [*lines, [name, "spread", *_cells(spread), "", "", "", ""]] if spread else lines


def _ties(groups: Sequence[Group]) -> dict[str, str]:
    """Return a mark for each experiment that the test images do not separate from another one."""
    by_images: dict[str, list[Group]] = {}
    for group in groups:
        if group[0].ranks is not None:
            by_images.setdefault(str(comparable_digests(group[0].ranks)), []).append(group)
    found: dict[str, str] = {}
    used = 0  # letters
    for tested in (each for each in by_images.values() if len(each) > 1):
        ranking = rank_experiments(
            [[run.ranks for run in group if run.ranks is not None] for group in tested]
        )
        marks = {group[0].experiment: ranking.letters(side, used) for side, group in enumerate(tested)}
        found |= {experiment: f"tie {letters}" for experiment, letters in marks.items() if letters}
        used += len(ranking.groups)
    return found


def _other_rows(groups: Sequence[Group], tied: Mapping[str, str]) -> list[list[str]]:
    """Return the rows of runs that belong to no printed row, those with the best validation first."""
    best, lines = best_by_validation(groups), list[list[str]]()
    for group in sorted(groups, key=lambda group: -(mean_validation(group) or 0.0)):
        found = [run.results[0] for run in group if run.results]
        if found:
            few = small_split_warning(found[0].images, found[0].chance, len(RECALLS)) is not None
            tie = tied.get(group[0].experiment, "")
            marks = "; ".join(filter(None, [CHOSEN * (group in best), tie, FEW_IMAGES * few]))
            name = describe(group[0])
            lines += [*_means_and_spread(name, "ours", found, group, marks), *_baseline_rows(name, group)]
    return lines


def _baseline_rows(name: str, group: Group) -> list[list[str]]:
    """Return the closed-form baseline of a trained experiment, and whether the experiment stays below it."""
    baselines = [run.baseline for run in group if run.baseline is not None]
    if not baselines or group[0].settings.get("train", {}).get("method", "steps") != "steps":
        return []
    below = "below its baseline" if any(run.is_below_baseline for run in group) else ""
    return [[name, "closed form", *["-"] * 8, f"{baselines[0]:.1f}", "", "", "", below]]


def _described_rows(
    group: Sequence[DescribedRun], metrics: Sequence[str | None], style: str
) -> list[list[str]]:
    """Return a row per answer of a group of runs: the means over its seeds."""
    answers = [name for name, values in group[0].results.items() if isinstance(values, dict)]
    # A file without several answers has one, itself.
    found = {name: [run.results[name] for run in group] for name in answers} or {
        "": [run.results for run in group]
    }
    lines = []
    for name, each in found.items():
        # None where a table has a column that own runs do not, or where METEOR was not computed.
        values = [[one.get(metric) if metric else None for metric in metrics] for one in each]
        if all(value is None for row in values for value in row):
            continue
        means = [None if None in column else fmean(column) for column in zip(*values, strict=True)]
        title = " ".join(filter(None, [group[0].name, name]))
        lines.append([title, _describe_system(group[0]), *_cells(means, style), str(len(group)), ""])
    return lines


def _describe_system(run: DescribedRun) -> str:
    """Describe a run by the keys that distinguish the systems."""
    keys = run.settings.get(run.section, {})
    shown = [
        str(keys[key]) for key in ("condition", "inject", "cell", "order", "concept_loss") if key in keys
    ]
    learns, tuned = keys.get("learns", []), ["network fine-tuned"] * bool(run.tuning)
    return ", ".join([*shown, "+".join(learns if isinstance(learns, list) else [learns]), *tuned])


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


def _floats(printed: Sequence[float | None]) -> Numbers:
    return tuple(None if number is None else float(number) for number in printed)


def _with_medians(*halves: Sequence[float | None]) -> Numbers:
    """Return the printed numbers of both directions, with None for a median rank that is not printed."""
    return tuple(number for half in halves for number in (*half, *[None] * (len(METRIC_KEYS) - len(half))))


def _cells(numbers: Sequence[float | None], style: str = ".1f") -> list[str]:
    # Printed median ranks are integers; means over seeds may not be.
    return [
        "-" if number is None else str(number) if isinstance(number, int) else format(number, style)
        for number in numbers
    ]


def _started(group: Group) -> list[str]:
    recorded = [run.started for run in group if run.started is not None]
    return [str(sum(recorded)) if recorded else "not recorded", str(len(recorded))]
