"""Runs made by hand."""

from pathlib import Path

import numpy as np

from fne.paper.measured import Measured
from fne.paper.runs import Run
from fne.store.arrays import Arrays
from fne.store.lineage import Artifact
from tests.paper.samples import sections

CAFFE = "c" * 64
EXTRACT = {
    "backbone": "vgg16",
    "activations": "post_relu",
    "resize": "squash",
    "crops": "ten",
    "precision": "float32",
}
FLICKR8K = {"train": (6000, 30000), "val": (1000, 5000), "test": (1000, 5000)}
NUMBERS = (25.0, 50.8, 64.3, 5.0, 18.6, 44.9, 58.0, 7.0)


def ranks(weights=CAFFE, kind="file", seed=0, images=6, extract=EXTRACT, catalog="1" * 64) -> Arrays:
    """Return ranks as an evaluation stores them, drawn from a seed."""
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
    measured=None,
    root="data/flickr8k",
    stored=None,
    started=True,
    **train,
) -> Run:
    """Return a run with the settings of a preset that fits the paper in all respects, but for what is given."""
    settings = sections(name, dataset, following)
    settings["train"] |= {"seed": seed, **train}
    settings |= {"catalog": {"root": root}, "extract": {**EXTRACT, "weights": "vgg.pth"}}
    found = measured or Measured("test", "full", NUMBERS, 1000, 5000)
    return Run(f"{name}-{seed}", settings, [found], started, {"vgg.pth": "w"}, stored or ranks(), counts)
