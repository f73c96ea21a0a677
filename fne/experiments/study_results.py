"""The results of a study: the ranks of each training run, and what they say about cells and hypotheses.

`results/GRID/LEVEL/…/fold-F-seed-S.h5` holds the ranks of one training, the key that decided them, and
what was chosen on the inner validation.

The folds of a seed together test every image once. A cell counts when all of its folds and seeds are
finished. With five folds or five seeds a hypothesis can be called shown. Training by steps also varies by
chance, which only several seeds show. With fewer than five of them, and on the splits of the catalog with
one training per cell, a verdict is about these training runs only, and says so.

All results must be of one state of the project: `require_one_state` refuses a mixture.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fne.core.errors import InputError
from fne.core.files import text_digest
from fne.core.settings import flattened
from fne.evaluation.intervals import LEVEL, Interval, Ranked, percentiles
from fne.evaluation.metrics.recall import chance_of_rsum, has_started, sum_of_recalls, summarize
from fne.evaluation.paired import (
    ENOUGH_SEEDS,
    Difference,
    compare_rsums,
    holm,
    rsum_samples,
)
from fne.evaluation.ranks_file import RANKS
from fne.experiments.grids import Grid
from fne.experiments.study_file import SEEDS, Hypothesis, Study, StudyCell
from fne.store.arrays import read_arrays, write_arrays

AGAIN = "remove the file, and `fne study run` computes it again"
# Samples per interval; when it is corrected for a dozen hypotheses, each tail has about 20 of them.
SAMPLES = 10_000
# Keys of training by steps that follow from others: what it starts from, with which dimensions.
DERIVED = re.compile(r"train\.(start|word_dim|methods\.[a-z]+\.dim)")
VERSIONS = {"version": "study", "trainer": "trainer"}
CELLS = ["cell", "values", "bytes", "started", "training_runs", "validation", "rsum", "low", "high"]
HYPOTHESES = ["hypothesis: B is better", "A", "B", "B - A", "corrected", "p", "folds", "verdict"]


@dataclass(frozen=True)
class StudyResult:
    """The ranks of one training on the test images of its fold."""

    image_ids: list[str]
    caption_image: np.ndarray  # (captions) the position of each caption's image
    image_ranks: np.ndarray  # (images) of the first true caption
    caption_ranks: np.ndarray  # (captions)
    validation: float  # the sum of recalls on the inner validation, of the chosen draw
    features: int  # the values of an image
    size: int  # the bytes of the code of an image
    trials: list[dict[str, Any]]  # each draw with its validation and what was chosen
    decided_by: dict[str, Any] = field(default_factory=dict)  # settings, and the digests of the inputs

    @property
    def rsum(self) -> float:
        """The sum of the six recalls on the test images."""
        return sum_of_recalls(summarize(self.image_ranks), summarize(self.caption_ranks))


@dataclass(frozen=True)
class CellResult:
    """The result of a cell."""

    cell: StudyCell
    rsum: float  # averaged over folds and seeds
    interval: Interval  # 95 %, over images and, with enough of them, over seeds
    validation: float  # the mean sum of recalls on the inner validation
    features: int  # the values of an image
    size: int  # the bytes of an image
    folds: list[float]  # the sum of recalls of each fold, averaged over seeds
    started: int  # how many training runs are clearly above chance
    training_runs: int


@dataclass(frozen=True)
class Tested:
    """A hypothesis with its difference, the corrected p value, and how many folds agree; or nothing yet."""

    hypothesis: Hypothesis
    difference: Difference | None
    p: float = 1.0
    agreeing: int = 0
    folds: int = 0
    few: bool = False  # too few training runs to say more than what holds for these

    @property
    def verdict(self) -> str:
        """Whether it is shown."""
        if self.difference is None:
            return "not run"
        said = {"B is better": "shown", "A is better": "the opposite is shown"}
        verdict = said.get(self.difference.verdict)
        if verdict is None:
            return self.difference.verdict
        return f"{verdict} for these training runs" if self.few else verdict


@dataclass(frozen=True)
class StudyResults:
    """All finished cells of a study, in the order of its file, and its hypotheses."""

    study: Study
    cells: list[CellResult]
    hypotheses: list[Tested]
    chance: float
    images: int
    training_runs: int  # that are finished

    @property
    def planned(self) -> int:
        """How many training runs the study has."""
        return len(self.study.cells) * len(self.study.folds) * len(self.study.seeds)


Kept = Mapping[str, list[list[StudyResult]]]  # the finished cells by name: a list of folds for each seed
Samples = Mapping[str, tuple[float, np.ndarray]]  # by cell: the sum of recalls, and its resamples


def keep_result(
    folder: Path, cell: StudyCell, fold: int, seed: int, key: dict[str, Any], result: StudyResult
) -> None:
    """Keep the ranks of a training run."""
    path = _path(folder, cell, fold, seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, np.ndarray | Sequence[str]] = {
        "image_ids": result.image_ids,
        "caption_image": result.caption_image.astype(np.int32),
        "image_ranks": result.image_ranks.astype(np.int32),
        "caption_ranks": result.caption_ranks.astype(np.int32),
    }
    settings = {
        "cell": cell.name,
        "fold": fold,
        "seed": seed,
        "key": _digest(key),
        "decided_by": key,
        "validation": result.validation,
        "features": result.features,
        "bytes": result.size,
        "trials": result.trials,
    }
    write_arrays(path, "ranks", arrays, settings, {})


def find_result(
    folder: Path, cell: StudyCell, fold: int, seed: int, key: dict[str, Any] | None = None
) -> StudyResult | None:
    """Return the kept ranks of a training run, or None; with a key, only those that this key decided.

    A file that is damaged, or that holds the result of another training run than its name says, is refused.
    """
    path = _path(folder, cell, fold, seed)
    if not path.exists():
        return None
    try:
        found = read_arrays(path, RANKS)
    except InputError as error:
        raise InputError(f"{error.message} (a result of a study: {AGAIN})") from None
    settings = found.artifact.settings
    if key is not None and settings.get("key") != _digest(key):
        return None
    place = f"{cell.name!r}, fold {fold}, seed {seed}"
    own = f"{settings.get('cell')!r}, fold {settings.get('fold')}, seed {settings.get('seed')}"
    if own != place:
        told = f"{own} (key {str(settings.get('key'))[:12]}…)"
        raise InputError(f"{path}: holds the result of {told}, not of {place}; {AGAIN}")
    return StudyResult(
        image_ids=found.texts("image_ids"),
        caption_image=found["caption_image"],
        image_ranks=found["image_ranks"],
        caption_ranks=found["caption_ranks"],
        validation=float(settings["validation"]),
        features=int(settings["features"]),
        size=int(settings["bytes"]),
        trials=list(settings["trials"]),
        decided_by=dict(settings["decided_by"]),
    )


def collect(study: Study, folder: Path, samples: int = SAMPLES) -> StudyResults:
    """Read the results of a study; mixtures of images or states are refused, and studies without a result."""
    kept, training_runs = _finished(study, folder)
    if not kept:
        raise InputError(f"{folder}: no cell is finished yet; use `fne study run {study.path}`")
    _require_same_images(study, kept)
    require_one_state(study, kept)
    sides = {name: [_joined(seed) for seed in seeds] for name, seeds in kept.items()}
    drawn = rsum_samples(list(sides.values()), samples, study.file.seed, same_seeds=True)
    sampled = dict(zip(sides, drawn, strict=True))
    cells = [
        _cell_result(cell, kept[cell.name], *sampled[cell.name])
        for cell in sorted(study.cells, key=_file_order(study))
        if cell.name in kept
    ]
    first = next(iter(sides.values()))[0]
    counts = np.bincount(first.caption_image, minlength=len(first.folds))
    chance = np.mean([chance_of_rsum(counts[first.folds == fold]) for fold in np.unique(first.folds)])
    tested = _test(study, cells, kept, sampled)
    return StudyResults(study, cells, tested, float(chance), len(first.folds), training_runs)


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
        f"folds: how many have the sign of B - A; chance reaches {found.chance:.1f}"
    )
    tables = [
        Grid(study.file.title, HYPOTHESES, [_hypothesis_row(each) for each in found.hypotheses], 3, legend)
    ]
    for grid, content in study.file.grids.items():
        own = [each for each in found.cells if each.cell.grid == grid]
        columns = [*content.factors, "values", "bytes", "started", "validation", "rsum", f"{LEVEL:.0%}"]
        planned = sum(cell.grid == grid for cell in study.cells)
        title = f"{grid}: {len(own)} of {planned} cells"
        tables.append(Grid(title, columns, [_cell_row(each) for each in own], len(content.factors)))
    return tables


def cell_table(found: StudyResults) -> Grid:
    """Return all cells as one table of numbers, for other programs."""
    rows = [
        [
            each.cell.name,
            *map(str, (each.features, each.size, each.started, each.training_runs)),
            *(f"{value:.2f}" for value in (each.validation, each.rsum, *each.interval)),
        ]
        for each in found.cells
    ]
    return Grid(found.study.file.title, CELLS, rows)


def require_one_state(study: Study, kept: Kept) -> None:
    """Refuse results that were made with different settings, features, captions or versions.

    What a cell sets itself may differ, and so may what follows from it.
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


def _finished(study: Study, folder: Path) -> tuple[Kept, int]:
    """Return the cells of which all folds and seeds are finished, and how many training runs are."""
    kept: dict[str, list[list[StudyResult]]] = {}
    training_runs = 0
    for cell in study.cells:
        found = [[find_result(folder, cell, fold, seed) for fold in study.folds] for seed in study.seeds]
        finished = [[each for each in seed if each is not None] for seed in found]
        training_runs += sum(len(seed) for seed in finished)
        if all(len(seed) == len(study.folds) for seed in finished):
            kept[cell.name] = finished
    return kept, training_runs


def _test(study: Study, cells: Sequence[CellResult], kept: Kept, sampled: Samples) -> list[Tested]:
    """Return all hypotheses of a study; p is corrected for their number."""
    by_name = {each.cell.name: each for each in cells}
    enough = max(len(study.folds), len(study.seeds)) >= ENOUGH_SEEDS
    tested = []
    for hypothesis in study.file.hypotheses:
        names = hypothesis.a, hypothesis.b
        if not all(name in by_name for name in names):
            tested.append(Tested(hypothesis, None))
            continue
        by_steps = any(_by_steps(kept[name][0][0].decided_by) for name in names)
        few = len(study.seeds) < ENOUGH_SEEDS if by_steps else not enough
        said = enough or not study.file.folds
        a, b = (sampled[name] for name in names)
        difference = compare_rsums(a, b, said, len(study.file.hypotheses))
        differences = np.array(by_name[hypothesis.b].folds) - np.array(by_name[hypothesis.a].folds)
        agreeing = int((np.sign(differences) == np.sign(difference.b - difference.a)).sum())
        tested.append(Tested(hypothesis, difference, difference.p, agreeing, len(differences), few))
    # What was not run counts as a hypothesis with p = 1: the number is that of the file.
    corrected = holm([each.p for each in tested])
    return [replace(each, p=p) for each, p in zip(tested, corrected, strict=True)]


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
        f"{each.started} of {each.training_runs}",
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
    first, interval = flat[0], percentiles(drawn)
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


def _require_same_images(study: Study, kept: Kept) -> None:
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


def _digest(key: dict[str, Any]) -> str:
    return text_digest(json.dumps(key, sort_keys=True))


def _path(folder: Path, cell: StudyCell, fold: int, seed: int) -> Path:
    return folder.joinpath("results", *cell.name.split("/"), f"fold-{fold}-seed-{seed}.h5")
