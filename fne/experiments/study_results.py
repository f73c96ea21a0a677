"""What the results of a study say: each cell with its interval, and each hypothesis with a corrected one.

The folds of a seed together test every image once. A cell counts when all of its folds and seeds are
finished. With five folds or five seeds a hypothesis can be called shown. Trainings by steps also differ by
chance, which only several seeds show. With fewer than five of them, and on the splits of the catalog with
one training per cell, a verdict is about these trainings only, and says so.

All results must be of one state of the project: `require_one_state` refuses a mixture.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fne.core.effective_settings import flattened
from fne.core.errors import InputError
from fne.evaluation.intervals import LEVEL, Interval, Ranked
from fne.evaluation.metrics.recall import chance_of_rsum, has_started
from fne.evaluation.paired import (
    ENOUGH_SEEDS,
    Difference,
    central,
    compare_rsums,
    holm,
    rsum_samples,
)
from fne.experiments.grids import Grid
from fne.experiments.study_file import SEEDS, Hypothesis, Study, StudyCell
from fne.experiments.study_record import StudyResult, find_result

# Of an interval that is corrected for a dozen hypotheses, each tail has about 20 of these samples.
SAMPLES = 10_000
# Of a training by steps, keys that follow from others: what it starts from, with which dimensions.
DERIVED = re.compile(r"train\.(start|word_dim|methods\.[a-z]+\.dim)")
VERSIONS = {"version": "study", "trainer": "trainer"}
CELLS = ["cell", "values", "bytes", "started", "trainings", "validation", "rsum", "low", "high"]
HYPOTHESES = ["hypothesis: B is better", "A", "B", "B - A", "corrected", "p", "folds", "verdict"]


@dataclass(frozen=True)
class CellResult:
    """The result of a cell.

    Attributes:
        cell: the cell.
        rsum: the sum of recalls, averaged over folds and seeds.
        interval: of 95 %, over images and, with enough of them, over seeds.
        validation: the mean sum of recalls on the inner validation.
        features: the values of an image.
        size: the bytes of an image.
        folds: the sum of recalls of each fold, averaged over seeds.
        started: how many trainings are clearly above guessing, out of `trainings`.
        trainings: how many there are.
    """

    cell: StudyCell
    rsum: float
    interval: Interval
    validation: float
    features: int
    size: int
    folds: list[float]
    started: int
    trainings: int


@dataclass(frozen=True)
class Tested:
    """A hypothesis with its difference, the corrected p value, and how many folds agree; or nothing yet.

    `few` tells that there are too few trainings to say more than what holds for these.
    """

    hypothesis: Hypothesis
    difference: Difference | None
    p: float = 1.0
    agreeing: int = 0
    folds: int = 0
    few: bool = False

    @property
    def verdict(self) -> str:
        """Whether it is shown."""
        if self.difference is None:
            return "not run"
        said = {"B is better": "shown", "A is better": "the opposite is shown"}
        verdict = said.get(self.difference.verdict)
        if verdict is None:
            return self.difference.verdict
        return f"{verdict} for these trainings" if self.few else verdict


@dataclass(frozen=True)
class StudyResults:
    """All finished cells of a study, in the order of its file, and its hypotheses."""

    study: Study
    cells: list[CellResult]
    hypotheses: list[Tested]
    guessing: float
    images: int
    trainings: int  # that are finished

    @property
    def planned(self) -> int:
        """How many trainings the study has."""
        return len(self.study.cells) * len(self.study.folds) * len(self.study.seeds)


def collect(study: Study, folder: Path, samples: int = SAMPLES) -> StudyResults:
    """Read the results of a study.

    Raises:
        InputError: if no cell is finished, or if two were tested with different images.
    """
    sides: dict[str, list[Ranked]] = {}
    kept: dict[str, list[list[StudyResult]]] = {}
    trainings = 0
    for cell in study.cells:
        found = [[find_result(folder, cell, fold, seed) for fold in study.folds] for seed in study.seeds]
        finished = [[each for each in seed if each is not None] for seed in found]
        trainings += sum(len(seed) for seed in finished)
        if all(len(seed) == len(study.folds) for seed in finished):
            kept[cell.name] = finished
            sides[cell.name] = [_joined(seed) for seed in finished]
    if not sides:
        raise InputError(f"{folder}: no cell is finished yet; use `fne study run {study.path}`")
    _require_same_images(study, kept)
    require_one_state(study, kept)
    drawn = rsum_samples(list(sides.values()), samples, study.file.seed, same_seeds=True)
    sampled = dict(zip(sides, drawn, strict=True))
    cells = [
        _cell_result(cell, kept[cell.name], *sampled[cell.name])
        for cell in sorted(study.cells, key=_file_order(study))
        if cell.name in kept
    ]
    enough = max(len(study.folds), len(study.seeds)) >= ENOUGH_SEEDS
    count, tested = len(study.file.hypotheses), []
    by_name = {each.cell.name: each for each in cells}
    for hypothesis in study.file.hypotheses:
        if hypothesis.a not in by_name or hypothesis.b not in by_name:
            tested.append(Tested(hypothesis, None))
            continue
        a, b = by_name[hypothesis.a], by_name[hypothesis.b]
        by_steps = any(_by_steps(kept[name][0][0].decided_by) for name in (hypothesis.a, hypothesis.b))
        few = len(study.seeds) < ENOUGH_SEEDS if by_steps else not enough
        said = enough or not study.file.folds
        difference = compare_rsums(sampled[hypothesis.a], sampled[hypothesis.b], said, count)
        apart = np.array(b.folds) - np.array(a.folds)
        agreeing = int((np.sign(apart) == np.sign(difference.b - difference.a)).sum())
        tested.append(Tested(hypothesis, difference, difference.p, agreeing, len(apart), few))
    # What was not run counts as a hypothesis with p = 1: the number is that of the file.
    corrected = holm([each.p for each in tested])
    tested = [replace(each, p=p) for each, p in zip(tested, corrected, strict=True)]
    first = next(iter(sides.values()))[0]
    counts = np.bincount(first.caption_image, minlength=len(first.folds))
    guessing = np.mean([chance_of_rsum(counts[first.folds == fold]) for fold in np.unique(first.folds)])
    return StudyResults(study, cells, tested, float(guessing), len(first.folds), trainings)


def grids(found: StudyResults) -> list[Grid]:
    """Return the results of a study as tables."""
    study = found.study
    count = len(found.hypotheses)
    folds = f" in {study.file.folds} folds, each ranked within its fold" if study.file.folds else ""
    seeds = " and of the seeds" if len(study.seeds) >= ENOUGH_SEEDS else ""
    legend = (
        f"sums of recalls on {found.images} images{folds}; "
        f"intervals over {SAMPLES} resamples of the images{seeds}, paired, and corrected for {count} "
        f"hypotheses (digest of the file {study.digest[:12]}…); p by Holm; "
        f"folds: how many have the sign of B - A; guessing reaches {found.guessing:.1f}"
    )
    tables = [
        Grid(study.file.title, HYPOTHESES, [_hypothesis_row(each) for each in found.hypotheses], 3, legend)
    ]
    for grid, content in study.file.grids.items():
        own = [each for each in found.cells if each.cell.grid == grid]
        columns = [*content.factors, "values", "bytes", "started", "validation", "rsum", f"{LEVEL:.0%}"]
        rows = [_cell_row(each) for each in own]
        planned = sum(cell.grid == grid for cell in study.cells)
        title = f"{grid}: {len(own)} of {planned} cells"
        tables.append(Grid(title, columns, rows, text_columns=len(content.factors)))
    return tables


def cell_table(found: StudyResults) -> Grid:
    """Return all cells as one table of numbers, for other programs."""
    rows = [
        [
            each.cell.name,
            *map(str, (each.features, each.size, each.started, each.trainings)),
            *(f"{value:.2f}" for value in (each.validation, each.rsum, *each.interval)),
        ]
        for each in found.cells
    ]
    return Grid(found.study.file.title, CELLS, rows)


def _hypothesis_row(tested: Tested) -> list[str]:
    hypothesis, found = tested.hypothesis, tested.difference
    names = [hypothesis.says, hypothesis.a, hypothesis.b]
    if found is None:
        return [*names, "", "", "", "", tested.verdict]
    return [
        hypothesis.says,
        f"{hypothesis.a} {found.a:.1f}",
        f"{hypothesis.b} {found.b:.1f}",
        f"{found.b - found.a:+.1f}",
        f"{found.low:+.1f} to {found.high:+.1f}",
        f"{tested.p:.4f}",
        f"{tested.agreeing} of {tested.folds}",
        tested.verdict,
    ]


def _cell_row(each: CellResult) -> list[str]:
    return [
        *each.cell.levels.values(),
        str(each.features),
        str(each.size),
        f"{each.started} of {each.trainings}",
        f"{each.validation:.1f}",
        f"{each.rsum:.1f}",
        f"{each.interval[0]:.1f} to {each.interval[1]:.1f}",
    ]


def _cell_result(
    cell: StudyCell, results: Sequence[Sequence[StudyResult]], rsum: float, drawn: np.ndarray
) -> CellResult:
    flat = [each for seed in results for each in seed]
    folds = np.mean([[each.rsum for each in seed] for seed in results], axis=0)
    validation = float(np.mean([each.validation for each in flat]))
    started = sum(has_started(each.rsum, np.bincount(each.caption_image)) for each in flat)
    first, interval = flat[0], central(drawn)
    return CellResult(
        cell, rsum, interval, validation, first.features, first.size, folds.tolist(), started, len(flat)
    )


def _joined(folds: Sequence[StudyResult]) -> Ranked:
    """Return the ranks of all folds as one evaluation."""
    starts = np.cumsum([0, *(len(each.image_ids) for each in folds)])
    return Ranked(
        np.concatenate([each.image_ranks for each in folds]),
        np.concatenate([each.caption_ranks for each in folds]),
        np.concatenate([each.caption_image + start for each, start in zip(folds, starts[:-1], strict=True)]),
        np.repeat(np.arange(len(folds)), np.diff(starts)),
    )


def require_one_state(study: Study, kept: Mapping[str, Sequence[Sequence[StudyResult]]]) -> None:
    """Refuse results that were made with different settings, features, captions or versions.

    What a cell sets itself may differ, and so may what follows from it.

    Raises:
        InputError: naming two cells and what differs.
    """
    seen: dict[str, tuple[Any, str]] = {}
    for cell in study.cells:
        for seed in kept.get(cell.name, []):
            for fold, result in enumerate(seed):
                for key, value in _state(study, cell, fold, result.decided_by).items():
                    before, name = seen.setdefault(key, (value, cell.name))
                    if before != value:
                        raise InputError(
                            f"{study.path}: {name} was run with {key} {_shortened(before)}, {cell.name} with "
                            f"{_shortened(value)}; the same `fne study run` again repeats what has changed"
                        )


def _state(study: Study, cell: StudyCell, fold: int, decided_by: Mapping[str, Any]) -> dict[str, Any]:
    """Return what must be equal for all results that have it."""
    tuned = [study.file.tuning.key] if study.file.tuning else []
    own = {*cell.overrides, *SEEDS, *tuned}
    trained: Sequence[Mapping[str, Any]] = decided_by.get("train", [])
    settings = [
        *flattened({name: decided_by.get(name, {}) for name in ("embed", "tokenize")}).items(),
        *(each for draw in trained for each in flattened({"train": draw}).items()),
    ]
    data = [f"{key} {value}" for key, value in cell.overrides.items() if key.startswith("catalog.")]
    by_steps = _by_steps(decided_by)
    state = {
        key: value for key, value in settings if key not in own and not (by_steps and DERIVED.fullmatch(key))
    }
    state |= {f"{name} version": decided_by[key] for key, name in VERSIONS.items() if key in decided_by}
    if "captions" in decided_by:
        state[f"the captions of fold {fold} ({', '.join(data) or 'params.yaml'})"] = decided_by["captions"]
    if "activations" in decided_by:
        source = cell.overrides.get("embed.source", "of params.yaml")
        state[f"the features {source}"] = decided_by["activations"]
    return state


def _shortened(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:12]}…"


def _by_steps(decided_by: Mapping[str, Any]) -> bool:
    trained = decided_by.get("train", [])
    return bool(trained) and trained[0].get("method") == "steps"


def _require_same_images(study: Study, kept: dict[str, list[list[StudyResult]]]) -> None:
    first_name, first = next(iter(kept.items()))
    expected = [_tested(each) for each in first[0]]
    for name, results in kept.items():
        for seed in results:
            if [_tested(each) for each in seed] != expected:
                raise InputError(
                    f"{study.path}: {first_name} and {name} were tested with different images or captions; "
                    "cells of a study need the same ones"
                )


def _tested(result: StudyResult) -> tuple[list[str], list[int]]:
    return result.image_ids, result.caption_image.tolist()


def _file_order(study: Study) -> Callable[[StudyCell], tuple[int, ...]]:
    """Return the place of a cell in the file: its grid, then the level of each factor."""
    places = {grid: number for number, grid in enumerate(study.file.grids)}

    def place(cell: StudyCell) -> tuple[int, ...]:
        factors = study.file.grids[cell.grid].factors
        return (places[cell.grid], *(list(factors[name]).index(level) for name, level in cell.levels.items()))

    return place
