"""The input files of the `report` stage, for a tiny evaluated run."""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from PIL import Image as Pillow

from fne.core.files import text_digest
from fne.evaluation.metrics.recall import chance_of_rsum
from fne.report.sources import Evaluation, read_evaluation
from fne.store.arrays import write_arrays
from fne.store.artifact import Lineage, merge
from fne.store.catalog import Captioned, Image, read_captions, read_images, write_captions, write_images
from fne.store.checksums import parse_metrics, write_metrics
from fne.store.history import seal_history
from tests.support.datasets import image_entry

MODEL = text_digest("model")
TUNED, TUNED_MODEL = "tuned", text_digest("tuned")
# The lineage of a run with two phases and a ternary embedding.
FULL = {
    "embeddings": {
        "digest": text_digest("embeddings"),
        "settings": {
            "kind": "fne",
            "shares": {
                "conv1_1": {"minus": 0.25, "zero": 0.5, "plus": 0.25, "dead": 0.125},
                "fc7": {"minus": 0.125, "zero": 0.75, "plus": 0.125, "dead": 0.0},
            },
        },
    },
    "model": {
        "digest": MODEL,
        "settings": {"seed": 3, "loss": ["sum_hinge", "max_hinge"], "margin": [0.2], "epochs": [2]},
    },
}

SENTENCES = [("a red dog", "a dog"), ("a green cat", "a cat"), ("a blue bird", "a bird"), ("a gray fish",)]


@dataclass(frozen=True)
class Run:
    """The folder with the files of a run."""

    folder: Path

    @property
    def arguments(self) -> list[str]:
        """The arguments of the stage."""
        # Metrics and catalog are in the folder itself.
        return self._arguments("", "history", "", "index.html")

    @property
    def tuned_arguments(self) -> list[str]:
        """The arguments of the stage `tuned_page`; the ranks of the model before are the same."""
        for name, copy in (("retrieval", "tuned"), ("intervals", "tuned_intervals")):
            shutil.copy(self.folder / f"{name}.json", self.folder / f"{copy}.json")
        shutil.copy(self.folder / "ranks.h5", self.folder / "tuned_ranks.h5")
        return self._arguments("", "history", "tuning", "", "index.html")

    def _arguments(self, *names: str) -> list[str]:
        return [str(self.folder / name) for name in names] + ["--params", str(self.folder / "params.yaml")]

    @property
    def page(self) -> str:
        """The HTML that the stage wrote."""
        return (self.folder / "index.html").read_text(encoding="utf-8")


def write_run(
    folder: Path, sentences: list[tuple[str, ...]] = SENTENCES, top: int = 5, untrained: bool = True,
    pictures: bool = True, examples: int = 12, seed: int = 0, recalls: tuple[int, ...] = (1, 5, 10),
    folds: int = 1, more: Lineage | None = None,
) -> Run:  # fmt: skip
    """Write the inputs of the `report` stage, with one colored image per tuple of sentences."""
    ids = [f"image-{number:02}" for number in range(len(sentences))]
    images = [_picture(folder / "photos", id_, number) for number, id_ in enumerate(ids)] if pictures else []
    write_images(folder / "images.jsonl", images)
    records = [Captioned(id_, "test", texts, ()) for id_, texts in zip(ids, sentences, strict=True)]
    write_captions(folder / "captions.jsonl", records)
    _, images_artifact = read_images(folder / "images.jsonl")
    captioned, captions_artifact = read_captions(folder / "captions.jsonl")
    weights = {"digest": text_digest("weights"), "settings": {"kind": "random", "untrained": untrained}}
    lineage = merge(images_artifact, captions_artifact) | {"weights": weights} | (more or {})
    owner = np.repeat(np.arange(len(ids)), [len(texts) for texts in sentences])
    caption_ids = [caption_id for record in captioned for caption_id in record.caption_ids]
    write_ranks(folder, ids, caption_ids, owner, top, lineage, recalls, folds)
    (folder / "params.yaml").write_text(
        f"catalog:\n  root: {folder / 'photos'}\nreport:\n  examples: {examples}\n  seed: {seed}\n"
    )
    return Run(folder)


def read_run(folder: Path) -> Evaluation:
    """Read what `write_run` wrote."""
    return read_evaluation(folder / "retrieval.json", folder / "intervals.json", folder / "ranks.h5")


def write_ranks(
    folder: Path, ids: list[str], caption_ids: list[str], owner: np.ndarray, top: int, lineage: Lineage,
    recalls: tuple[int, ...], folds: int,
) -> None:  # fmt: skip
    """Write ranks, metrics and intervals of random scores that are higher for true pairs."""
    fold = np.arange(len(ids)) * folds // len(ids)
    true = owner == np.arange(len(ids))[:, None]  # (images, captions)
    scores = np.random.default_rng(0).normal(size=true.shape).astype(np.float32) + true
    scores[fold[:, None] != fold[owner]] = -np.inf  # other folds are not searched
    image_ranks, image_best = _rank(scores, true, top)
    caption_ranks, caption_best = _rank(scores.T, true.T, top)
    arrays = {
        "image_ids": ids,
        "caption_ids": caption_ids,
        "caption_image": owner,
        "folds": fold,
        "image_ranks": image_ranks,
        "caption_ranks": caption_ranks,
        "image_best": image_best,
        "image_best_scores": np.take_along_axis(scores, image_best, 1),
        "caption_best": caption_best,
        "caption_best_scores": np.take_along_axis(scores.T, caption_best, 1),
    }
    protocol = "full" if folds == 1 else f"coco_1k_mean{folds}"
    name = f"test_{protocol}"
    settings = {"split": "test", "protocol": protocol, "recalls": list(recalls), "top": top, "name": name}
    write_arrays(folder / "ranks.h5", "ranks", arrays, settings, lineage)
    both = {
        "image_to_text": _summary(image_ranks, fold, recalls),
        "text_to_image": _summary(caption_ranks, fold[owner], recalls),
    }
    rsum = sum(summary[f"R@{k}"] for summary in both.values() for k in recalls)
    counts = {"images": len(ids), "captions": len(caption_ids)}
    texts = np.bincount(owner, minlength=len(ids))
    chance = float(np.mean([chance_of_rsum(texts[fold == each], recalls) for each in range(folds)]))
    ties = {"image_to_text": 0, "text_to_image": 3}
    metrics = {**both, "rsum": rsum, "ties": ties, "chance": chance, **counts}
    write_metrics(folder / "retrieval.json", {name: metrics})
    made_from = {each: lineage[each]["digest"] for each in ("embeddings", "tokens") if each in lineage}
    baseline = {"rsum": 100.0, "rsum_low": 90.0, "rsum_high": 110.0}
    write_metrics(folder / "baseline.json", {name: baseline, "made_from": made_from})
    intervals = {
        direction: {key: _around(value) for key, value in each.items()} for direction, each in both.items()
    }
    training = {"validation": {"rsum": 300.0, "chance": 250.0}, "best_epoch": 2, "epochs": 4, "updates": 12}
    started = lineage.get("model", {}).get("settings", {}).get("started", True)
    write_metrics(folder / "training.json", training | {"started": started, "collapsed": False})
    write_metrics(folder / "intervals.json", {name: {**intervals, "rsum": _around(rsum)}})


def write_history(
    folder: Path, metrics: Mapping[str, Sequence[float | None]], model: str = MODEL, name: str = "history",
    kind: str = "model",
) -> None:  # fmt: skip
    """Write metrics as dvclive does, one value per step, as the history of a model."""
    for metric, values in metrics.items():
        path = folder / name / "plots" / "metrics" / f"{metric}.tsv"
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = [f"{step}\t{value}" for step, value in enumerate(values) if value is not None]
        path.write_text("\n".join([f"step\t{path.stem}", *rows]) + "\n")
    seal_history(folder / name, max(map(len, metrics.values())), model, kind)


def write_tuning(folder: Path, rsum: list[float], best_epoch: int, started: bool = True) -> None:
    """Write the metrics and the history of a fine-tuning that ended with `TUNED_MODEL`."""
    losses = [None, *(1 / epoch for epoch in range(1, len(rsum)))]
    write_history(folder, {"val/rsum": rsum, "train/loss": losses}, TUNED_MODEL, "tuning", TUNED)
    found = {"validation": {"rsum": rsum[best_epoch], "chance": 250.0}, "before": rsum[0], "updates": 4}
    found |= {"best_epoch": best_epoch, "epochs": len(rsum) - 1, "started": started, "collapsed": False}
    write_metrics(folder / "tuning.json", found)


def rewrite(path: Path, text: str, other: str) -> None:
    """Change sealed metrics as another run would have written them."""
    content = json.dumps(parse_metrics(path.read_bytes()))
    assert text in content
    write_metrics(path, json.loads(content.replace(text, other)))


def _picture(folder: Path, id_: str, number: int) -> Image:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{id_}.png"
    Pillow.new("RGB", (24, 16), (40 * number % 256, 90, 160)).save(path)
    return replace(image_entry(path), id=id_)


def _rank(scores: np.ndarray, true: np.ndarray, top: int) -> tuple[np.ndarray, np.ndarray]:
    order = np.argsort(-scores, axis=1, kind="stable")
    ranks = np.take_along_axis(true, order, 1).argmax(axis=1) + 1
    return ranks, order[:, :top]


def _summary(ranks: np.ndarray, fold: np.ndarray, recalls: tuple[int, ...]) -> dict[str, float]:
    parts = [ranks[fold == each] for each in np.unique(fold)]
    recall = {f"R@{k}": 100 * float(np.mean([np.mean(part <= k) for part in parts])) for k in recalls}
    median = float(np.mean([np.floor(np.median(part - 1)) + 1 for part in parts]))
    return recall | {"median_rank": median, "mean_rank": float(np.mean([part.mean() for part in parts]))}


def _around(value: float) -> dict[str, float]:
    return {"low": value * 0.75, "high": value * 1.25}
