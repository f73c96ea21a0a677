"""A tiny project whose activations are made up, for stages to run on in-process."""

import shutil
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from fne.store.artifact import Lineage
from fne.store.catalog import Captioned, Image, write_captions, write_images
from fne.store.checksums import parse_metrics
from fne.store.layout import Layer, plan_shards
from fne.store.rows import Rows, write_rows
from tests.support.imports import ROOT
from tests.support.projects import SMALL, change_params

SPLITS = ["train"] * 12 + ["val"] * 4 + ["test"] * 4
IDS = [f"{number:02d}.png" for number in range(len(SPLITS))]
LAYERS = (Layer("conv", 2), Layer("fc7", 4))
COMMANDS = {
    "standardize": "data/images.jsonl data/captions.jsonl features/statistics.h5",
    "embed": "features/statistics.h5 features/embeddings",
    "tokenize": "data/captions.jsonl captions/vocabulary.json captions/tokens.h5 captions/vectors.h5",
    "train": "features/embeddings data/captions.jsonl captions/tokens.h5 captions/vectors.h5 "
    "models/matching.safetensors models/classifier.safetensors models/history metrics/training.json",
    "finetune": "models/matching.safetensors models/classifier.safetensors data/images.jsonl "
    "data/captions.jsonl captions/tokens.h5 models/tuned.safetensors models/tuning metrics/tuning.json",
    "encode": "models/matching.safetensors features/embeddings data/captions.jsonl captions/tokens.h5 "
    "captions/vectors.h5 vectors/images vectors/captions",
    "encode_tuned": "models/tuned.safetensors data/images.jsonl data/captions.jsonl captions/tokens.h5 "
    "vectors/tuned/images vectors/tuned/captions",
    "evaluate": "vectors/images vectors/captions data/captions.jsonl "
    "metrics/retrieval.json metrics/intervals.json metrics/curves metrics/ranks.h5",
    "train_captioner": "features/embeddings data/captions.jsonl "
    "models/captioner.safetensors models/captioner_history",
    "write_captions": "models/captioner.safetensors features/embeddings data/captions.jsonl "
    "annotations/captions.jsonl",
    "score_captions": "annotations/captions.jsonl features/embeddings data/captions.jsonl "
    "metrics/captions.json metrics/caption_intervals.json",
    "captions_page": "metrics/captions.json metrics/caption_intervals.json annotations/captions.jsonl "
    "models/captioner_history data/images.jsonl data/captions.jsonl report/captions.html",
    "train_tagger": "features/embeddings data/captions.jsonl models/tagger.safetensors models/tagger_history",
    "write_tags": "models/tagger.safetensors features/embeddings data/captions.jsonl annotations/tags.jsonl",
    "score_tags": "annotations/tags.jsonl data/captions.jsonl metrics/tags.json metrics/tag_intervals.json",
    "tags_page": "metrics/tags.json metrics/tag_intervals.json annotations/tags.jsonl "
    "models/tagger_history data/images.jsonl data/captions.jsonl report/tags.html",
    "baseline": "features/embeddings data/captions.jsonl captions/tokens.h5 metrics/baseline.json",
}

Run = Callable[..., Result]


def write_activations(
    seed: int = 0,
    changed: dict[tuple[str, int], float] | None = None,
    folder: str = "features/activations",
    layers: Sequence[Layer] = LAYERS,
    settings: dict[str, object] | None = None,
    lineage: Lineage | None = None,
    equal_views: bool = False,
) -> str:
    """Write activations of a network with two layers, some of them changed, by image and column.

    With `equal_views`, layers are views of three features, all alike.

    Returns:
        the digest of the store.
    """
    drawn = np.random.default_rng(seed).normal(size=(len(IDS), 6)).astype(np.float32)
    if equal_views:
        drawn = np.tile(drawn[:, :3], len(layers))
    values = dict(zip(IDS, drawn, strict=True))
    for (image, column), value in (changed or {}).items():
        values[image][column] = value
    shards = [
        (number, ids, np.stack([values[each] for each in ids])) for number, ids in plan_shards(IDS, 2).items()
    ]
    made_with = {"seed": seed} | (settings or {})
    write_rows(Path(folder), "activations", layers, "float32", shards, made_with, lineage or {})
    return Rows.open(Path(folder)).artifact.digest


def write_catalog(splits: list[str] = SPLITS, word: str = "number") -> None:
    """Write captions, two for each image that is not in the gallery, and a list of image files."""
    write_images(Path("data/images.jsonl"), [Image(each, each, "0" * 64, 9, 1, 1) for each in IDS])
    write_captions(
        Path("data/captions.jsonl"),
        [
            Captioned(each, split, () if split == "gallery" else (f"{word} {each[:2]}", f"a {each[:2]}."), ())
            for each, split in zip(IDS, splits, strict=True)
        ],
    )


@pytest.fixture
def run(tmp_path, monkeypatch) -> Run:
    """Run stages by name, in a folder with activations and a catalog."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "params.yaml", tmp_path)
    shutil.copytree(ROOT / "weights", tmp_path / "weights")
    change_params(tmp_path, SMALL | {"train": SMALL["train"] | {"epochs": 2, "embed_dim": 8, "word_dim": 4}})
    write_activations()
    write_catalog()

    return invoke


def invoke(*stages: str) -> Result:
    """Run stages by name in the current folder, up to the first one that fails."""
    for stage in stages:
        result = CliRunner().invoke(import_module(f"stages.{stage}").main, COMMANDS[stage].split())
        if result.exit_code:
            break
    return result


def metrics() -> dict[str, object]:
    """Read the metrics that `evaluate` wrote."""
    found: dict[str, object] = parse_metrics(Path("metrics/retrieval.json").read_bytes())
    return found
