"""A small finished project, for tests that search in it."""

import shutil
from pathlib import Path

from PIL import Image as Pillow
from PIL import ImageDraw

from fne.store.catalog import Captioned, write_captions, write_images
from tests.support.datasets import image_entry
from tests.support.imports import ROOT
from tests.support.projects import SMALL, change_params
from tests.support.stages import invoke

COLORS = ["red", "green", "blue", "yellow", "purple", "orange", "gray", "brown"]
SHAPES = ["circle", "square", "line"]
# Eight training, four validation and eight test images, and four without captions.
SPLITS = ["train"] * 8 + ["val"] * 4 + ["test"] * 8 + ["gallery"] * 4
TRAINING = {"epochs": 2, "embed_dim": 8, "word_dim": 4, "batch": 4}
TAGGING = {"epochs": 1, "units": 8, "word_dim": 4, "batch": 4}
STAGES = ["extract", "standardize", "embed", "tokenize", "train", "encode", "train_tagger"]


def draw(path: Path, color: str, shape: str) -> None:
    """Draw a shape."""
    picture = Pillow.new("RGB", (72, 64), "white")
    pen = ImageDraw.Draw(picture)
    {"circle": pen.ellipse, "square": pen.rectangle, "line": pen.line}[shape]((12, 8, 60, 52), color)
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.save(path)


def write_project(folder: Path) -> None:
    """Draw 24 images and run all stages that a search needs; `folder` must be the current folder."""
    shutil.copy(ROOT / "params.yaml", folder)
    shutil.copytree(ROOT / "weights", folder / "weights")
    change_params(folder, SMALL | {"train": TRAINING, "train_tagger": TAGGING, "catalog": {"root": "photos"}})
    images, captioned = [], []
    for number, split in enumerate(SPLITS):
        color, shape = COLORS[number % len(COLORS)], SHAPES[number // len(COLORS)]
        name = f"{color}-{shape}.png"
        draw(folder / "photos" / name, color, shape)
        images.append(image_entry(folder / "photos" / name))
        captions = () if split == "gallery" else (f"A {color} {shape}.", f"Something {color}")
        captioned.append(Captioned(name, split, captions, (color, shape)))
    write_images(folder / "data/images.jsonl", images)
    write_captions(folder / "data/captions.jsonl", captioned)
    run_stages(*STAGES)


def run_stages(*stages: str) -> None:
    """Run stages in the current folder."""
    result = invoke(*stages)
    assert result.exit_code == 0, (result.output, result.exception)
