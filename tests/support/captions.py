"""A small captioned world whose image rows say exactly what is on the images."""

from pathlib import Path

import numpy as np

from fne.core.settings import parse_section, put
from fne.describing.inputs import Inputs, read_inputs
from fne.describing.settings import TrainCaptioner
from fne.store.catalog import Captioned, write_captions, write_images
from fne.store.layout import Layer
from tests.support.features import write_store

COLORS = ["red", "green", "blue", "gray"]
SHAPES = ["circle", "square", "star", "ring"]
SPLITS = ["train"] * 48 + ["val"] * 8 + ["test"] * 8
EMBEDDINGS = Path("features/embeddings")
CAPTIONS, IMAGES = Path("data/captions.jsonl"), Path("data/images.jsonl")
SMALL = {"units": 16, "word_dim": 12, "batch": 16, "epochs": 2, "min_count": 1, "dropout": 0.3}
READING = {"min_count": 1, "max_words": 100, "words.count": 30}


def write_world(folder: Path, noise: float = 0.1, seed: int = 0) -> None:
    """Write embeddings and captions of 64 images: every color and shape four times."""
    generator = np.random.default_rng(seed)
    rows, captioned = {}, []
    order = generator.permutation(64)
    for number, split in zip(order, SPLITS, strict=True):
        color, shape = COLORS[number % 4], SHAPES[number // 4 % 4]
        name = f"{number:02d}.png"
        row = np.zeros(8, dtype=np.float32)
        row[[number % 4, 4 + number // 4 % 4]] = 1
        rows[name] = row + noise * generator.normal(size=8).astype(np.float32)
        captions = (f"A {color} {shape}.", f"There is a {shape}, it is {color}.")
        captioned.append(Captioned(name, split, captions, (color, shape)))
    write_store(
        folder / EMBEDDINGS, "embeddings", [Layer("truth", 8)], rows, shards=2, settings={"kind": "raw"}
    )
    write_captions(folder / CAPTIONS, captioned)
    write_images(folder / IMAGES, [])


def inputs(folder: Path, **changes) -> Inputs:
    """Read what `write_world` wrote, for settings with changes."""
    chosen = settings(folder, **READING | changes)
    return read_inputs(folder / EMBEDDINGS, folder / CAPTIONS, chosen)


def settings(folder: Path, **changes) -> TrainCaptioner:
    """Return the default settings, smaller, with changes; nested keys as `a.b`."""
    content: dict[str, object] = {}
    for key, value in (SMALL | changes).items():
        put(content, key, value)
    found, faults = parse_section({"train_captioner": content}, "train_captioner", TrainCaptioner)
    assert found is not None, faults
    return found
