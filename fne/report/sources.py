"""The inputs of the report page: the results of the `evaluate` stage, and the metrics that dvclive logged.

`read_evaluation` and `read_history` raise an `InputError` that names the file if it is damaged.
"""

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from fne.core.dvc import repro_command
from fne.core.errors import InputError
from fne.core.files import files_in
from fne.evaluation.metrics.recall import mean_over_folds, sum_of_recalls, summarize
from fne.evaluation.paired import Difference
from fne.evaluation.ranks_file import RANKS
from fne.store.arrays import Arrays, read_arrays
from fne.store.artifact import Artifact, merge, require_same
from fne.store.checksums import read_metrics
from fne.store.history import MODEL, read_history_seal

TUNED = "tuned"  # what a tuned model is called in lineages
LOSS, RSUM, PHASE = "train/loss", "val/rsum", "train/phase"

Interval = tuple[float, float]  # low, high
Series = dict[int, float]  # step -> value
Levels = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Direction:
    """One search direction: queries are images and the pool is the sentences, or the reverse.

    In a protocol with folds, a query searches only the part of the pool in its own fold.
    """

    metrics: dict[str, float]
    query_ids: list[str]
    pool_ids: list[str]
    ranks: np.ndarray  # (queries,) of the first true item, from 1
    best: np.ndarray  # (queries, K) positions in the pool, best first
    scores: np.ndarray  # (queries, K)
    true: np.ndarray  # (queries, K) whether each of the best is a true item
    true_counts: np.ndarray  # (queries,)
    answers: np.ndarray | None  # (queries,) the true item, where each query has just one
    folds: np.ndarray  # (queries,) from 0
    pool_folds: np.ndarray  # (pool,)
    ties: int = 0  # queries with a wrong item whose score equals that of the true item
    intervals: dict[str, Interval] = field(default_factory=dict)  # 95 % interval per metric

    @classmethod
    def of(cls, ranks: Arrays, way: str) -> Self:
        """Return a direction, `image_to_text` or `text_to_image`, without metrics."""
        kind, other = ("image", "caption") if way == "image_to_text" else ("caption", "image")
        owner, folds = ranks["caption_image"], ranks["folds"]  # (captions,), (images,)
        image_of = {"image": np.arange(len(folds)), "caption": owner}
        own, pool = image_of[kind], image_of[other]  # (queries,), (pool,): the image of each
        nothing = np.zeros((len(own), 0), np.int64)
        best = ranks.values.get(f"{kind}_best", nothing)
        return cls(
            metrics={},
            query_ids=ranks.texts(f"{kind}_ids"),
            pool_ids=ranks.texts(f"{other}_ids"),
            ranks=ranks[f"{kind}_ranks"],
            best=best,
            scores=ranks.values.get(f"{kind}_best_scores", nothing),
            true=pool[best] == own[:, None],
            true_counts=np.bincount(pool, minlength=len(folds))[own],
            answers=owner if kind == "caption" else None,
            folds=folds[own],
            pool_folds=folds[pool],
        )

    @property
    def pool(self) -> int:
        """The number of items that a query searches; the largest fold counts."""
        return int(np.bincount(self.pool_folds).max())

    @property
    def recalls(self) -> dict[int, float]:
        """The recalls of the metrics file, in percent, by K."""
        found = {int(name[2:]): value for name, value in self.metrics.items() if name.startswith("R@")}
        return dict(sorted(found.items()))


def mean_recall(seeds: Sequence[np.ndarray], folds: np.ndarray, k: int) -> float:
    """Return recall@k in percent, as the mean over the folds and over the ranks (queries,) of each seed."""
    parts = [(ranks[folds == fold] <= k).mean() for ranks in seeds for fold in np.unique(folds)]
    return 100 * float(np.mean(parts))


@dataclass(frozen=True)
class Evaluation:
    """Both directions over one split."""

    artifact: Artifact
    split: str
    protocol: str
    folds: int
    rsum: float
    rsum_interval: Interval
    image_to_text: Direction
    text_to_image: Direction


@dataclass(frozen=True)
class History:
    """The metrics that training logged, by name; one step is one `unit` of training."""

    series: dict[str, Series]
    unit: str = "epoch"
    main: str = RSUM  # the validation score that chooses the weights
    item: str = "pair"  # what losses are averaged over
    # What the validation is compared with: `chance` and `baseline`, by the name of the metric after `val/`.
    levels: Levels = field(default_factory=dict)

    @property
    def best(self) -> int | None:
        """The first step with the highest validation score; training keeps its weights."""
        scores = self.series.get(self.main)
        return max(scores, key=lambda step: scores[step]) if scores else None

    @property
    def phase_spans(self) -> dict[int, tuple[int, int]]:
        """The first and last step of each phase, by the phase's number."""
        steps: dict[int, list[int]] = {}
        for step, phase in self.series.get(PHASE, {}).items():
            steps.setdefault(int(phase), []).append(step)
        return {phase: (min(each), max(each)) for phase, each in steps.items()}

    @property
    def curves(self) -> dict[str, Series]:
        """The metrics to draw: loss and main score first, then the others by name."""
        names = [name for name in (LOSS, self.main) if name in self.series]
        names += sorted(self.series.keys() - {LOSS, self.main, PHASE})
        return {name: self.series[name] for name in names}


NO_HISTORY = History({})


def read_evaluation(
    metrics_path: Path, intervals_path: Path, ranks_path: Path, remedy: str = "run `dvc repro evaluate`"
) -> Evaluation:
    """Read the three files of the `evaluate` stage; damaged ones are refused, and those of unlike runs."""
    ranks = read_arrays(ranks_path, RANKS)
    settings = ranks.artifact.settings
    name = str(settings.get("name"))
    metrics = _read_json(metrics_path, name, {"ties", "images", "captions"}, remedy)
    intervals = _read_json(intervals_path, name, set(), remedy)
    images, captions = ranks.texts("image_ids"), ranks.texts("caption_ids")
    if (metrics["images"], metrics["captions"]) != (len(images), len(captions)):
        raise InputError(
            f"{metrics_path} covers {metrics['images']} images and {metrics['captions']} captions, but "
            f"{ranks_path} covers {len(images)} and {len(captions)}; {remedy}"
        )
    try:
        _check_positions(ranks)
        evaluation = Evaluation(
            artifact=ranks.artifact,
            split=settings["split"],
            protocol=settings["protocol"],
            folds=len(np.unique(ranks["folds"])),
            rsum=metrics["rsum"],
            rsum_interval=_interval(intervals["rsum"]),
            image_to_text=_direction(ranks, "image_to_text", metrics, intervals),
            text_to_image=_direction(ranks, "text_to_image", metrics, intervals),
        )
        directions = (evaluation.image_to_text, evaluation.text_to_image)
        for direction in directions:
            _check_metrics(metrics_path, intervals_path, direction, settings["recalls"], remedy)
        rsum = sum_of_recalls(*(direction.metrics for direction in directions))
        _compare(metrics_path, "rsum", evaluation.rsum, rsum, remedy)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        raise InputError(
            f"{metrics_path}, {intervals_path} and {ranks_path} do not fit together ({error!r}); {remedy}"
        ) from None
    return evaluation


def read_history(
    folder: Path,
    evaluation: Artifact,
    levels: Levels,
    unit: str = "epoch",
    main: str = RSUM,
    item: str = "pair",
) -> History:
    """Read the history of the training whose model was evaluated; without a folder it is empty.

    Args:
        evaluation: what was made with the model of that training, or the model itself.
        levels: what the validation is compared with.
        unit: what one step of the history is.
        main: the validation score that chose the weights.
        item: what losses are averaged over.
    """
    if folder.exists():
        merge(evaluation, read_history_seal(folder).artifact)
    return replace(read_tables(folder, unit), main=main, item=item, levels=levels)


@dataclass(frozen=True)
class Tuning:
    """What a fine-tuning found: the content of its metrics file, and its history from epoch 0, its start.

    `gain` has the metrics of the model before it beside those of the tuned one.
    """

    metrics: dict[str, Any]
    history: History
    gain: list[Difference]


def read_tuning(
    path: Path, folder: Path, evaluation: Artifact, gain: list[Difference], levels: Levels
) -> Tuning:
    """Read metrics and history of the fine-tuning whose model was evaluated."""
    require_same((TUNED, MODEL), evaluation, read_history_seal(folder).artifact)
    metrics = read_training(path, evaluation, TUNED)
    history = read_tables(folder, first=0)
    kept, recorded = history.series.get(RSUM, {}).get(metrics["best_epoch"]), metrics["validation"]["rsum"]
    if kept != recorded:
        raise InputError(
            f"{path} has the validation rsum {recorded}, but {folder} has {kept} in epoch "
            f"{metrics['best_epoch']}; run `dvc repro {repro_command(path, 'finetune')}`"
        )
    return Tuning(metrics, replace(history, item="image", levels=levels), gain)


def read_training(path: Path, evaluation: Artifact, model: str = MODEL) -> dict[str, Any]:
    """Read `metrics/training.json` of the evaluated model, or `metrics/tuning.json` of a tuned one."""
    stage = "train" if model == MODEL else repro_command(path, "finetune")
    remedy = f"run `dvc repro {stage}`"
    content = read_metrics(path, remedy)
    try:
        found = content["best_epoch"]
        wanted = evaluation.lineage.get(model, {}).get("settings", {}).get("best_epoch")
        complete = {"rsum", "chance"} <= content["validation"].keys()
        if not complete or not {"epochs", "updates", "started", "collapsed"} <= content.keys():
            raise ValueError("keys are missing")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: damaged ({error}); {remedy}") from None
    if wanted is not None and found != wanted:
        raise InputError(
            f"{path} has the best epoch {found}, but the model that was evaluated has {wanted}; "
            f"{remedy if model == TUNED else 'run `dvc repro`'}"
        )
    return content


def read_tables(folder: Path, unit: str = "epoch", first: int = 1) -> History:
    """Read all metrics below a dvclive folder, without values that are not finite.

    Args:
        unit: what one step is.
        first: the number of the first step, which dvclive counts as 0.
    """
    tables = folder / "plots" / "metrics"
    series = {
        str(path.relative_to(tables).with_suffix("")): _read_series(path, first)
        for path in sorted(files_in(tables) if tables.is_dir() else [])
        if path.suffix == ".tsv"
    }
    return History({name: values for name, values in series.items() if values}, unit)


def _direction(ranks: Arrays, way: str, metrics: dict[str, Any], intervals: dict[str, Any]) -> Direction:
    return replace(
        Direction.of(ranks, way),
        metrics=metrics[way],
        ties=_count(metrics["ties"][way]),
        intervals={metric: _interval(bounds) for metric, bounds in intervals[way].items()},
    )


def _check_metrics(
    metrics_path: Path, intervals_path: Path, direction: Direction, recalls: list[int], remedy: str
) -> None:
    """Refuse metrics that the ranks do not give, and intervals of other metrics."""
    expected = mean_over_folds(
        [summarize(direction.ranks[direction.folds == fold], recalls) for fold in np.unique(direction.folds)]
    )
    for name in sorted({*expected, *direction.metrics}):
        _compare(metrics_path, name, direction.metrics.get(name), expected.get(name), remedy)
    for name in sorted(expected.keys() ^ direction.intervals.keys()):
        raise InputError(f"{intervals_path}: '{name}' is missing or no metric; {remedy}")


def _check_positions(ranks: Arrays) -> None:
    """Refuse positions of images and captions that are not there."""
    pools = {"caption_image": "image_ids", "caption_best": "image_ids", "image_best": "caption_ids"}
    for name, pool in pools.items():
        if ranks[name].size and not 0 <= ranks[name].min() <= ranks[name].max() < len(ranks[pool]):
            raise ValueError(f"'{name}' has positions beyond its {len(ranks[pool])} {pool}")


def _compare(path: Path, name: str, found: float | None, correct: float | None, remedy: str) -> None:
    if found is None or correct is None or not math.isclose(found, correct, abs_tol=1e-6):
        raise InputError(f"{path}: has {name} = {found}, the ranks give {correct}; {remedy}")


def _interval(bounds: dict[str, float]) -> Interval:
    low, high = bounds["low"], bounds["high"]
    if not low <= high:  # also numbers that are none, and texts and numbers together
        raise ValueError(f"{low!r} to {high!r} is not an interval")
    return float(low), float(high)


def _count(value: Any) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} is not a number of ties")
    return value


def _read_json(path: Path, name: str, extra_keys: set[str], remedy: str) -> dict[str, Any]:
    content = read_metrics(path, remedy)
    expected = {"image_to_text", "text_to_image", "rsum"} | extra_keys
    found = content.get(name)
    if not isinstance(found, dict) or not expected <= found.keys():
        raise InputError(f"{path}: expected {', '.join(sorted(expected))} under '{name}'; {remedy}")
    return found


def _read_series(path: Path, first: int) -> Series:
    with path.open(encoding="utf-8", newline="") as file:
        try:
            points = {
                int(row["step"]) + first: float(row[path.stem])
                for row in csv.DictReader(file, delimiter="\t")
            }
        except (KeyError, TypeError, ValueError):
            raise InputError(
                f"{path}: expected numbers in columns 'step' and '{path.stem}'; run `dvc repro train`"
            ) from None
    return {step: value for step, value in sorted(points.items()) if math.isfinite(value)}
