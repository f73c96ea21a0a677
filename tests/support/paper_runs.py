"""Runs of the paper's methods, built without a project."""

from pathlib import Path

import numpy as np

from fne.experiments.presets import load
from fne.experiments.runs import Result, Run
from fne.store.arrays import Arrays
from fne.store.artifact import Artifact
from tests.support.paper_tables import sections

CAFFE = "c" * 64
EXTRACT = {
    "backbone": "vgg16",
    "activations": "post_relu",
    "resize": "squash",
    "crops": "ten",
    "views": "mean",
    "layers": "all",
    "precision": "float32",
}
FLICKR8K = {"train": (6000, 30000), "val": (1000, 5000), "test": (1000, 5000)}
FLICKR8K_DIGESTS = load("datasets")["flickr8k"]["ids"]
NUMBERS = (25.0, 50.8, 64.3, 5.0, 18.6, 44.9, 58.0, 7.0)


def ranks(weights=CAFFE, kind="file", seed=0, images=6, extract=EXTRACT, catalog="1" * 64) -> Arrays:
    """Return random ranks as an evaluation stores them."""
    generator = np.random.default_rng(seed)
    lineage = {
        "activations": {"digest": "a" * 64, "settings": {**extract, "extractor": 1}},
        "weights": {
            "digest": weights,
            "settings": {"kind": kind, "name": "IMAGENET1K_V1", "file": "vgg.pth"},
        },
        "images": {"digest": catalog, "settings": {}},
        "captions": {"digest": "2" * 64, "settings": {}},
    }
    values = {
        "image_ids": np.array([f"i{number}".encode() for number in range(images)], dtype=object),
        "caption_ids": np.array(
            [f"i{number // 5}#{number % 5}".encode() for number in range(5 * images)], dtype=object
        ),
        "caption_image": np.repeat(np.arange(images), 5),
        "folds": np.zeros(images, dtype=np.int64),
        "image_ranks": generator.integers(1, 30, images),
        "caption_ranks": generator.integers(1, 6, 5 * images),
    }
    return Arrays(Artifact(Path("ranks.h5"), "ranks", "r" * 64, {}, lineage), values)


def run(
    name="FNE-SH",
    dataset="flickr8k",
    following="paper",
    seed=0,
    counts=FLICKR8K,
    split_digests=FLICKR8K_DIGESTS,
    result=None,
    root="data/flickr8k",
    stored=None,
    started=True,
    extract=EXTRACT,
    **train,
) -> Run:
    """Return a run of a preset that matches the paper in all respects, except for what is passed."""
    settings = sections(name, dataset, following)
    settings["train"] |= {"seed": seed, **train}
    settings.setdefault("catalog", {})["root"] = root
    settings |= {"extract": {**extract, "input": "torchvision", "weights": "vgg.pth"}}
    found = result or Result("test", "full", NUMBERS, 1000, 5000, 3.2)
    hashes = {"vgg.pth": "w"}
    return Run(f"{name}-{seed}", settings, [found], started, hashes, stored or ranks(), counts, split_digests)
