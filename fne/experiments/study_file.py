"""The file of a study: factors and levels as `-S` values, seeds, folds, and what is expected of the results.

A study has grids. A grid is the product of its factors; a level of a factor is a set of overrides of
`params.yaml`, as `dvc exp run -S` takes them. A cell is one choice of levels, named `GRID/LEVEL/LEVEL`.
All cells of a study have the same data, folds and seeds, and the same number of draws of the tuned key.

Three keys are not parameters of the pipeline: `study.project` reduces the dimension of an embedding
(`pca:N` or `random:N`), as a control, and `study.panel` and `study.series` say where and under which name
the figure shows a cell.

The hypotheses are part of the file. Its digest is recorded with the results (`record.json`) before the first
run, so the number of comparisons that intervals are corrected for is known beforehand. A file that is changed
afterwards is refused: hypotheses that were written after the results would count for nothing.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
from pydantic import AfterValidator, Field, ValidationError, model_validator

from fne.core.errors import InputError
from fne.core.files import read_bytes, write_text
from fne.core.settings import Section, not_one_of, parse_yaml

RECORD, LOCK, WORK = "record.json", "lock", ".study-work"
# Names become names of folders.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 _.,+=-]{0,59}")
PROJECT, PANEL, SERIES = "study.project", "study.panel", "study.series"
PROJECTION = re.compile(r"(pca|random):([1-9][0-9]{0,4})")
OWN = (PROJECT, PANEL, SERIES)
# What the seed of a training run replaces.
SEEDS = ("train.seed", "train.cca.seed", "train.ridge.seed")
Overrides = dict[str, Any]


def _check_name(name: str) -> str:
    if not NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a name: letters, digits, spaces and _ . , + = - are allowed")
    return name


def _check_overrides(overrides: Overrides) -> Overrides:
    for key, value in overrides.items():
        if key.startswith("study.") and key not in OWN:
            raise ValueError(not_one_of(key, OWN))
        if key == PROJECT and not PROJECTION.fullmatch(str(value)):
            raise ValueError(f"{PROJECT} is 'pca:N' or 'random:N', got {value!r}")
        if "." not in key:
            raise ValueError(f"{key!r} is not SECTION.KEY, as `-S` takes it")
    return overrides


Name = Annotated[str, AfterValidator(_check_name)]
Set = Annotated[Overrides, AfterValidator(_check_overrides)]


class Tuning(Section):
    """How often the tuned key is drawn for each cell, log-uniformly; the inner validation chooses."""

    key: Annotated[str, Field(min_length=3)]
    draws: Annotated[int, Field(ge=1)]
    low: Annotated[float, Field(gt=0)]
    high: Annotated[float, Field(gt=0)]

    @model_validator(mode="after")
    def _low_is_not_above_high(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"low must not be above high, got low={self.low}, high={self.high}")
        return self

    def values(self, seed: int) -> list[float]:
        """Return the draws, the same for every cell.

        Example:
            >>> Tuning(key="train.learning_rate", draws=2, low=0.001, high=0.1).values(0)
            [0.0187899, 0.00346396]
        """
        generator = np.random.default_rng(seed)
        exponents = generator.uniform(np.log(self.low), np.log(self.high), self.draws)
        return [float(f"{np.exp(each):.6g}") for each in exponents]


class Factors(Section):
    """A grid: overrides that all of its cells have, and the levels of its factors."""

    set: Set
    factors: Annotated[dict[Name, Annotated[dict[Name, Set], Field(min_length=1)]], Field(min_length=1)]


class Hypothesis(Section):
    """What is expected: that the cell `b` has a larger sum of recalls than the cell `a`."""

    says: Annotated[str, Field(min_length=1)]
    a: str
    b: str


class StudyFile(Section):
    """The content of a study's file."""

    title: Annotated[str, Field(min_length=1)]
    question: Annotated[str, Field(min_length=1)]
    seed: Annotated[int, Field(ge=0)]  # random seed of folds, validation images and draws
    folds: Annotated[int, Field(ge=0, le=100)]  # 0: the splits of the catalog
    validation: Annotated[float, Field(gt=0, le=0.5)]  # a fraction of the training images of a fold
    seeds: Annotated[int, Field(ge=1)]  # training runs per cell and fold
    base: Set
    tuning: Tuning | None
    grids: Annotated[dict[Name, Factors], Field(min_length=1)]
    hypotheses: list[Hypothesis]

    @model_validator(mode="after")
    def _hypotheses_name_cells(self) -> Self:
        names = [cell.name for cell in _cells(self)]
        for hypothesis in self.hypotheses:
            for name in (hypothesis.a, hypothesis.b):
                if name not in names:
                    raise ValueError(
                        f"hypotheses: {name!r} is not a cell of the study; the first is {names[0]!r}"
                    )
        return self

    @model_validator(mode="after")
    def _nothing_is_set_twice(self) -> Self:
        drawn = {self.tuning.key: "which `tuning` draws"} if self.tuning else {}
        for cell in _cells(self):
            for key, why in (dict.fromkeys(SEEDS, "which follows from `seed` and `seeds`") | drawn).items():
                if key in cell.overrides:
                    raise ValueError(f"{cell.name} sets {key}, {why}; remove one of the two")
        return self

    @model_validator(mode="after")
    def _at_least_two_folds(self) -> Self:
        if self.folds == 1:
            raise ValueError("folds is 0 (the splits of the catalog) or at least 2, got 1")
        return self


@dataclass(frozen=True)
class StudyCell:
    """One choice of levels."""

    grid: str
    levels: dict[str, str]  # factor: name of the level
    overrides: Mapping[str, Any]  # keys of `params.yaml`
    project: str | None  # how the dimension of the embedding is reduced
    panel: str  # in which part of the figure it is
    series: str  # under which name the figure shows it there

    @property
    def name(self) -> str:
        """The grid and the levels."""
        return "/".join([self.grid, *self.levels.values()])


@dataclass(frozen=True)
class Study:
    """A study: its file, the digest of that file, and its cells in the order in which they run."""

    path: Path
    digest: str
    file: StudyFile
    cells: list[StudyCell]
    images: int = 0  # how many a pilot uses; 0: all

    @property
    def draws(self) -> list[Overrides]:
        """The overrides of each draw of the tuned key; one empty set without tuning."""
        tuning = self.file.tuning
        return [{tuning.key: value} for value in tuning.values(self.file.seed)] if tuning else [{}]

    @property
    def folds(self) -> range:
        """The numbers of the folds; a single one for the splits of the catalog."""
        return range(max(1, self.file.folds))

    @property
    def seeds(self) -> range:
        """The seeds of the training runs."""
        return range(self.file.seed, self.file.seed + self.file.seeds)


def load_study(path: Path, seed: int | None = None, official: bool = False, images: int = 0) -> Study:
    """Read the file of a study; all of its faults are in one message.

    Args:
        seed: replaces the seed of the file, for a repetition.
        official: whether to use the splits of the catalog instead of folds.
        images: how many images a pilot uses; 0: all.
    """
    if official and images:
        raise InputError("--images makes a pilot of the folds; leave it out with --official")
    content = read_bytes(path)
    found = parse_yaml(content, str(path))
    found |= ({} if seed is None else {"seed": seed}) | ({"folds": 0} if official else {})
    try:
        file = StudyFile.model_validate(found)
    except ValidationError as error:
        places = [".".join(map(str, each["loc"])) for each in error.errors()]
        texts = [each["msg"].removeprefix("Value error, ") for each in error.errors()]
        faults = [f"{place}: {text}" if place else text for place, text in zip(places, texts, strict=True)]
        raise InputError(f"{path}: {'; '.join(faults)}") from None
    named = {name for hypothesis in file.hypotheses for name in (hypothesis.a, hypothesis.b)}
    # What a hypothesis names runs first; Python's sort keeps the order of the others.
    cells = sorted(_cells(file), key=lambda cell: cell.name not in named)
    return Study(path, hashlib.sha256(content).hexdigest(), file, cells, images)


def default_folder(file: Path, seed: int | None, official: bool, images: int) -> Path:
    """Return where the results of a study are kept.

    Example:
        >>> str(default_folder(Path("studies/flickr8k.yaml"), 1, False, 1000))
        'studies/flickr8k-seed-1-images-1000'
    """
    parts = [f"-seed-{seed}"] * (seed is not None) + ["-official"] * official
    ending = "".join(parts + [f"-images-{images}"] * bool(images))
    return file.with_name(file.stem + ending)


def require_own_folder(folder: Path) -> None:
    """Refuse a folder that holds something else than the results of a study."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; choose another folder with --to")
    if not folder.exists() or (folder / RECORD).exists():
        return
    others = sorted(each.name for each in folder.iterdir() if each.name not in (LOCK, WORK))
    if others:
        raise InputError(
            f"{folder}: holds '{others[0]}' and no record of a study; choose another folder with --to"
        )


def record_study(study: Study, folder: Path) -> None:
    """Record the digest of a study's file before its first run, or compare it with the recorded one."""
    path = folder / RECORD
    if path.exists():
        check_record(study, folder)
        return
    folder.mkdir(parents=True, exist_ok=True)
    recorded = {"file": study.digest, **_conditions(study), "hypotheses": len(study.file.hypotheses)}
    write_text(path, json.dumps(recorded, indent=2) + "\n")


def check_record(study: Study, folder: Path) -> None:
    """Refuse a study of which nothing was run, or whose file was changed since, with both digests."""
    path = folder / RECORD
    if not path.exists():
        raise InputError(f"{folder}: nothing was run yet; use `fne study run {study.path}`")
    try:
        recorded = json.loads(read_bytes(path))
        before, conditions = recorded["file"], {name: recorded[name] for name in _conditions(study)}
        if not isinstance(before, str):
            raise KeyError("file")
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: damaged ({error}); choose another folder with --to") from None
    if before != study.digest:
        raise InputError(
            f"{study.path} was recorded as {before[:12]}… before its first run, and is "
            f"{study.digest[:12]}… now; restore the file, or run the new one in another folder with --to"
        )
    if conditions != _conditions(study):
        said = [
            ", ".join(f"{name} {value}" for name, value in each.items())
            for each in (conditions, _conditions(study))
        ]
        raise InputError(
            f"{folder}: was run with {said[0]}, not with {said[1]}; choose another folder with --to"
        )


def _conditions(study: Study) -> dict[str, int]:
    return {"seed": study.file.seed, "folds": study.file.folds, "images": study.images}


def _cells(file: StudyFile) -> Iterator[StudyCell]:
    for grid, content in file.grids.items():
        for levels in product(*(factor.items() for factor in content.factors.values())):
            overrides = file.base | content.set
            for _, own in levels:
                overrides |= own
            names = dict(zip(content.factors, (name for name, _ in levels), strict=True))
            parameters = {key: value for key, value in overrides.items() if key not in OWN}
            panel, series = str(overrides.get(PANEL, grid)), str(overrides.get(SERIES, "cells"))
            yield StudyCell(grid, names, parameters, overrides.get(PROJECT), panel, series)
