"""Papers whose systems describe images, with tags or sentences: their presets and their tables.

Their folders in `papers/` have presets by pipeline (`tagging`, `captioning`), and tables with columns of
their own. Their systems are addressed like those of the other papers, `semantic/RIA`, and so are their
tables, `semantic/1`. Some papers fine-tune their network or use data that is not available. No result of this
project appears in their rows; own results have rows of their own.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from statistics import fmean
from typing import TYPE_CHECKING, Any

from fne.core.errors import InputError
from fne.experiments.presets import DEMO, Overrides, Preset, description_papers, load, split_address
from fne.experiments.printed_tables import Grid, load_table, table_title

if TYPE_CHECKING:  # `fne preset` answers at once, and the records of runs import NumPy and h5py
    from fne.experiments.runs import DescribedRun

OTHERS = "Runs of this project"
# The section of params.yaml that each pipeline trains by.
SECTIONS = {"captioning": "train_captioner", "tagging": "train_tagger"}


@dataclass(frozen=True)
class PrintedNumbers:
    """A row of a table of descriptions; None where the paper prints nothing."""

    model: str
    preset: str  # its address; empty if there is none
    numbers: tuple[float | None, ...]
    notes: list[str]


def description_names() -> list[str]:
    """Return the addresses of all presets of systems that describe images."""
    return [f"{paper}/{name}" for paper in description_papers() for name in _methods(paper)]


def pipeline_of(name: str) -> str:
    """Return the pipeline that runs a preset, such as `tagging`."""
    paper, own = split_address(name)
    return _methods(paper)[own]


def description_preset(name: str, dataset: str, following: str = "paper") -> Preset:
    """Return the preset of a system for a data set.

    Args:
        name: one of `description_names()`.
        dataset: a data set of `fne preset`.
        following: "paper", or "code" where a published code differs from it.

    Raises:
        InputError: if there is no such preset; the message names the closest one.
    """
    if name not in description_names():
        [close] = get_close_matches(name, description_names(), n=1, cutoff=0)
        raise InputError(f"there is no preset '{name}' (did you mean '{close}'?); see `fne preset --list`")
    paper, own = split_address(name)
    rules = load("presets", paper)
    pipeline = rules["pipelines"][_methods(paper)[own]]
    overrides: Overrides = pipeline["all"] | pipeline["methods"][own]
    published = rules.get("following", {}).get(following, {}).get(own, {})
    overrides |= published
    overrides |= pipeline.get("datasets", {}).get(dataset, {})
    if dataset == DEMO:
        overrides |= {key: value for key, value in pipeline["demo"].items() if key in overrides}
    section = next(key.partition(".")[0] for key in overrides if key.endswith(".epochs"))
    overrides[f"{section}.patience"] = overrides[f"{section}.epochs"]
    about_dataset = pipeline.get("notes_for", rules["notes_for"])[dataset]
    notes = [*pipeline["notes"], *rules["notes_of"][own], *about_dataset]
    return Preset(name, dataset, following, overrides, [rules["notes"][note] for note in notes])


def printed_numbers(address: str) -> list[PrintedNumbers]:
    """Return the rows of a table, in the order of the paper."""
    table, (paper, _) = load_table(address), split_address(address)
    texts = table["notes"] | table["errata"]
    return [
        PrintedNumbers(
            row["model"],
            f"{paper}/{row['preset']}" if "preset" in row else "",
            tuple(row["numbers"]),
            [texts[note] for note in (*row.get("notes", []), *row.get("errata", []))],
        )
        for row in table["rows"]
    ]


def description_grids(address: str, runs: "Iterable[DescribedRun]") -> list[Grid]:
    """Return a table as printed, and below it a row for each own run and answer, with means over seeds."""
    table = load_table(address)
    columns = ["model", "source", *table["columns"], "seeds", "notes"]
    notes: list[str] = []
    body = []
    for row in printed_numbers(address):
        notes += [note for note in row.notes if note not in notes]
        marks = "".join(f"[{notes.index(note) + 1}]" for note in row.notes)
        body.append([row.model, "paper", *_cells(row.numbers, table["digits"]), "", marks])
    grids = [Grid(table_title(address), columns, body, 2, " ".join(table["legend"].split()), notes)]
    own = [line for group in _groups(runs) for line in _own_rows(group, table)]
    return [*grids, Grid(OTHERS, columns, own, 2)] if own else grids


def _groups(runs: "Iterable[DescribedRun]") -> "list[list[DescribedRun]]":
    """Group runs that differ in their seed only, with one run per seed."""
    groups: dict[str, dict[Any, DescribedRun]] = {}
    for run in runs:
        groups.setdefault(run.experiment, {}).setdefault(run.seed, run)
    return [list(group.values()) for group in groups.values()]


def _own_rows(group: "Sequence[DescribedRun]", table: Mapping[str, Any]) -> list[list[str]]:
    """Return a row per answer of a group of runs: the means over its seeds."""
    answers = [name for name, values in group[0].results.items() if isinstance(values, dict)]
    # A file without several answers has one, itself.
    found = {name: [run.results[name] for run in group] for name in answers} or {
        "": [run.results for run in group]
    }
    lines = []
    for name, each in found.items():
        # None where a table has a column that own runs do not, or where METEOR was not computed.
        values = [[one.get(metric) if metric else None for metric in table["metrics"]] for one in each]
        if all(value is None for row in values for value in row):
            continue
        means = [None if None in column else fmean(column) for column in zip(*values, strict=True)]
        title = " ".join(filter(None, [group[0].name, name]))
        line = [title, _description(group[0]), *_cells(means, table["digits"])]
        lines.append([*line, str(len(group)), ""])
    return lines


def _description(run: "DescribedRun") -> str:
    """Describe a run by the keys that distinguish the systems."""
    keys = run.settings.get(run.section, {})
    shown = [
        str(keys[key]) for key in ("condition", "inject", "cell", "order", "concept_loss") if key in keys
    ]
    learns = keys.get("learns", [])
    return ", ".join([*shown, "+".join(learns if isinstance(learns, list) else [learns])])


def _cells(numbers: Sequence[float | None], digits: int) -> list[str]:
    return ["-" if number is None else f"{number:.{digits}f}" for number in numbers]


@cache
def _methods(paper: str) -> dict[str, str]:
    """Return the pipeline of each system of a paper, by its name."""
    pipelines = load("presets", paper)["pipelines"]
    return {name: pipeline for pipeline, rules in pipelines.items() for name in rules["methods"]}
