"""A tiny project whose activations are made up, for stages to run on in-process."""

import json
import shutil
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from fne.store.catalog import Captioned, Image, write_captions, write_images
from fne.store.layout import Layer, plan_shards
from fne.store.lineage import Lineage
from fne.store.rows import Rows
from fne.store.writer import write_rows
from tests.imports import ROOT
from tests.projects import SMALL, change_params

SPLITS = ["train"] * 12 + ["val"] * 4 + ["test"] * 4
IDS = [f"{number:02d}.png" for number in range(len(SPLITS))]
LAYERS = (Layer("conv", 2), Layer("fc7", 4))
COMMANDS = {
    "standardize": "data/images.jsonl data/captions.jsonl features/statistics.h5",
    "embed": "features/statistics.h5 features/embeddings",
    "tokenize": "data/captions.jsonl captions/vocabulary.json captions/tokens.h5",
    "train": "features/embeddings data/captions.jsonl captions/tokens.h5 "
    "models/matching.safetensors models/history",
    "encode": "models/matching.safetensors features/embeddings data/captions.jsonl captions/tokens.h5 "
    "vectors/images vectors/captions",
    "evaluate": "vectors/images vectors/captions data/captions.jsonl "
    "metrics/retrieval.json metrics/intervals.json metrics/ranks.h5",
}

Run = Callable[..., Result]


def write_activations(
    seed: int = 0,
    changed: dict[tuple[str, int], float] | None = None,
    folder: str = "features/activations",
    layers: Sequence[Layer] = LAYERS,
    settings: dict[str, object] | None = None,
    lineage: Lineage | None = None,
) -> str:
    """Write activations of a network with two layers, some of them changed, by image and column.

    Returns:
        the digest of the store.
    """
    values = dict(
        zip(IDS, np.random.default_rng(seed).normal(size=(len(IDS), 6)).astype(np.float32), strict=True)
    )
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
    change_params(tmp_path, SMALL | {"train": SMALL["train"] | {"epochs": 2, "embed_dim": 8, "word_dim": 4}})
    write_activations()
    write_catalog()

    def run_stages(*stages: str) -> Result:
        for stage in stages:
            result = CliRunner().invoke(import_module(f"stages.{stage}").main, COMMANDS[stage].split())
            if result.exit_code:
                break
        return result

    return run_stages


def metrics() -> dict[str, object]:
    """Read the metrics that `evaluate` wrote."""
    found: dict[str, object] = json.loads(Path("metrics/retrieval.json").read_text())
    return found
