"""What `fne verify` and `fne inspect` do with metrics: of retrieval, tags, captions and training runs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fne.core.errors import InputError
from fne.core.terminal import aligned
from fne.describing.settings import CAPTIONER
from fne.evaluation.baseline import baseline_artifact
from fne.evaluation.metrics.recall import chosen_by, small_split_warning
from fne.evaluation.score_captions import best_baseline
from fne.store.artifact import Contents, Done, Kind, Lines
from fne.store.checksums import METRICS_SEAL, check_metrics, read_json, read_metrics

FAULTS = (ValueError, KeyError, TypeError, AttributeError)  # what other metrics raise
TAGGING = "run `dvc repro pipelines/tagging/dvc.yaml`"


def _check(path: Path, done: Done) -> Contents:
    check_metrics(path)
    return Contents()


def _describe(path: Path) -> Lines:
    if METRICS_SEAL.encode() not in read_json(path):
        return []  # not metrics of a stage
    splits = read_metrics(path, "run `dvc repro`")
    try:
        tables = [(split, metrics) for split, metrics in splits.items() if not split.startswith("made_")]
        return [line for split, metrics in tables for line in _table(path, split, metrics)]
    except FAULTS:
        return []  # not a table of metrics


def _table(path: Path, split: str, metrics: dict[str, Any]) -> Lines:
    if CAPTIONER in metrics:
        return _caption_table(path, split, metrics)
    names = list(metrics["image_to_text"])
    rows = [["", *(name.replace("_", " ") for name in names)]]
    for title in ("image to text", "text to image"):
        values = metrics[title.replace(" ", "_")]
        rows.append([title, *(f"{values[name]:.1f}" for name in names)])
    recalls = sum(name.startswith("R@") for name in names)
    warning = small_split_warning(metrics["images"], metrics["chance"], recalls)
    return [
        f"{path}: {split}, {metrics['images']} images, {metrics['captions']} captions",
        *(f"  {line}" for line in aligned(rows)),
        f"  sum of recalls {metrics['rsum']:.1f} of {200 * recalls}; chance {metrics['chance']:.1f}",
        *([f"  Warning: {warning}"] if warning else []),
        *_chosen(split),
    ]


def _caption_table(path: Path, split: str, metrics: dict[str, Any]) -> Lines:
    systems = [name for name, value in metrics.items() if isinstance(value, dict)]
    names = [name for name in metrics[systems[0]] if "-" in name or name == "METEOR"]
    several = "CIDEr-D" in names  # images
    rows = [["", *names, "words", "distinct"]]
    for system in systems:
        own = metrics[system]
        scores = [f"{own[name]:.3f}" for name in names]
        rows.append([system, *scores, f"{own['words_used']:.0f}", f"{own['distinct_captions']:.0%}"])
    return [
        f"{path}: {split}, captions of {metrics['images']} images",
        *(f"  {line}" for line in aligned(rows)),
        *[_above_baseline(metrics)] * several,
        *["  the captioner writes the same for (nearly) all images"] * bool(metrics["collapsed"]),
        *_chosen(split),
    ]


def _above_baseline(metrics: dict[str, Any]) -> str:
    """Compare the captioner with the best baseline."""
    best = best_baseline(metrics)
    difference = metrics[CAPTIONER]["CIDEr-D"] - metrics[best]["CIDEr-D"]
    return f"  CIDEr-D of the captioner: {difference:+.3f} to the best baseline, '{best}'"


def _describe_tags(path: Path) -> Lines:
    splits = read_metrics(path, TAGGING)
    try:
        return [line for name, metrics in splits.items() for line in _tag_table(path, name, metrics)]
    except FAULTS as error:
        raise InputError(f"{path}: not the metrics of tags ({error!r}); {TAGGING}") from None


def _tag_table(path: Path, name: str, metrics: dict[str, Any]) -> Lines:
    answers = {each: values for each, values in metrics.items() if isinstance(values, dict)}
    columns = ("class_precision", "class_recall", "class_f1", "image_f1", "pooled_f1", "predicted_length")
    ranked = f", mAP {metrics['mAP']:.1f}" if "mAP" in metrics else ""
    unlearned = metrics["unlearned_tags"]
    left_out = f"; {unlearned} true tags are not concepts" if unlearned else ""
    rows = [["", *(column.replace("_", " ") for column in columns)]]
    rows += [[each, *(f"{values[column]:.1f}" for column in columns)] for each, values in answers.items()]
    return [
        f"{path}: {name}, {metrics['images']} images, {metrics['concepts']} concepts{ranked}{left_out}",
        *(f"  {line}" for line in aligned(rows)),
        *_chosen(name),
    ]


def _chosen(name: str) -> Lines:
    """Warn of figures of the split that chose the epoch."""
    warning = chosen_by(name)
    return [f"  Warning: {warning}"] if warning else []


def _training(title: str, stage: str) -> Callable[[Path], Lines]:
    """Return what describes the metrics of a training run."""

    def describe(path: Path) -> Lines:
        remedy = f"run `dvc repro {stage}`"
        found = read_metrics(path, remedy)
        try:
            went = "started" if found["started"] else "did not start"
            epochs = f"best epoch {found['best_epoch']} of {found['epochs']}, {found['updates']:,} updates"
            table = _table(path, "validation", found["validation"])
            collapsed = ", collapsed to one point" if found["collapsed"] else ""
        except FAULTS as error:
            raise InputError(f"{path}: damaged ({error!r}); {remedy}") from None
        return [*table, f"  {title}  {went}{collapsed}; {epochs}"]

    return describe


def _open_baseline(path: Path) -> Contents:
    return Contents(baseline_artifact(path))


def _check_baseline(path: Path, done: Done) -> Contents:
    check_metrics(path)
    return _open_baseline(path)


BASELINE = Kind("baseline.json", _check_baseline, _open_baseline, _describe)
TRAINING = Kind("training.json", _check, None, _training("training", "train"))
TUNING = Kind("tuning.json", _check, None, _training("fine-tuning", "pipelines/finetuning/dvc.yaml"))
TAG_METRICS = Kind(
    "tags.json", _check, None, _describe_tags, lambda path: path.name in ("tags.json", "tuned_tags.json")
)
METRICS = Kind(".json", _check, None, _describe)
