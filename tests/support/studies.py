"""A study of a made-up data set that takes seconds: captions of two words, features that follow from them."""

import json
from pathlib import Path

import numpy as np
from ruamel.yaml import YAML

from fne.core.settings import load_params, put
from fne.store.layout import Layer
from tests.support.features import store
from tests.support.imports import ROOT

LAYERS = [Layer("conv1", 3), Layer("conv2", 4)]
SHAPES, COLORS = ("circle", "square", "star"), ("red", "green", "blue", "white")
STUDY = {
    "title": "A study",
    "question": "Does it matter?",
    "seed": 0,
    "folds": 3,
    "validation": 0.2,
    "seeds": 1,
    "base": {
        "catalog.root": "data/small",
        "catalog.images": "none",
        "embed.source": "features/small",
        "train.method": "cca",
        "train.cca.choose_on": "val",
        "train.cca.dim": 4,
        "train.cca.text_dim": 0,
        "train.cca.min_count": 1,
    },
    "tuning": None,
    "grids": {
        "small": {
            "set": {"study.panel": "Small"},
            "factors": {
                "layers": {"all": {"embed.layers": "all"}, "last": {"embed.layers": "last:1"}},
                "code": {
                    "ternary": {"embed.kind": "fne", "study.series": "ternary"},
                    "z": {"embed.kind": "zscore", "study.series": "float16"},
                },
            },
        },
        "projected": {
            "set": {"embed.kind": "zscore"},
            "factors": {"how": {"pca": {"study.project": "pca:2"}}},
        },
    },
    "hypotheses": [
        {"says": "layers matter", "a": "small/last/z", "b": "small/all/z"},
        {"says": "bits matter", "a": "small/all/ternary", "b": "small/all/z"},
    ],
}


def write_study(folder: Path, **changes: object) -> Path:
    """Write a data set of 48 images, its features, parameters and a study into a folder; return its file."""
    generator = np.random.default_rng(0)
    images, values = [], []
    for number in range(48):
        shape, color = number % len(SHAPES), number // 12
        captions = [f"a {COLORS[color]} {SHAPES[shape]}", f"{SHAPES[shape]} in {COLORS[color]}"]
        split = "test" if number % 8 == 7 else "val" if number % 8 == 6 else "train"
        sentences = [{"raw": caption} for caption in captions]
        images.append({"filename": f"r{number:02d}", "split": split, "sentences": sentences})
        row = np.concatenate([np.eye(3)[shape], np.eye(4)[color]])
        values.append(row + 0.3 * generator.random(7))
    (folder / "data/small").mkdir(parents=True)
    (folder / "features").mkdir()
    (folder / "data/small/dataset.json").write_text(json.dumps({"images": images}), encoding="utf-8")
    store(folder / "features/small", np.array(values, dtype=np.float32), LAYERS)
    params = load_params(ROOT / "params.yaml")
    put(params, "runtime.threads", 1)
    put(params, "train.threads", 1)
    put(params, "runtime.device", "cpu")
    with (folder / "params.yaml").open("w", encoding="utf-8") as file:
        YAML().dump(params, file)
    (folder / "studies").mkdir()
    return write_file(folder / "studies/small.yaml", **changes)


def write_file(path: Path, **changes: object) -> Path:
    """Write the file of a study, with changes."""
    with path.open("w", encoding="utf-8") as file:
        YAML().dump(STUDY | changes, file)
    return path
