"""A small world to tag: scenes of the demo, whose features ARE the truth, and settings to train with."""

import shutil
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from fne.core.settings import parse_section, put
from fne.datasets.demo.dataset import Render, describe_dataset
from fne.describing.inputs import Inputs, read_inputs
from fne.describing.settings import TrainTagger
from fne.store.catalog import Captioned, write_captions, write_images
from fne.store.layout import Layer
from tests.support.features import write_store
from tests.support.imports import ROOT
from tests.support.projects import change_params

EMBEDDINGS, CAPTIONS = Path("features/embeddings"), Path("data/captions.jsonl")
IMAGES = Path("data/images.jsonl")
SMALL = {
    "threads": 1,
    "units": 16,
    "word_dim": 8,
    "epochs": 2,
    "concept_head_rate": 0.02,
    "learning_rate": 0.01,
}


def scenes(images: int = 120) -> list[Captioned]:
    """The captions, tags and user tags of drawn scenes; a user tag is a synonym of every other tag."""
    settings = Render(seed=0, images=images, val_share=0.2, test_share=0.2, side=32)
    return [
        Captioned(
            image["filename"],
            image["split"],
            tuple(sentence["raw"] for sentence in image["sentences"]),
            tuple(image["tags"]),
            image["imgid"],
            tuple(f"my {tag}" for tag in image["tags"] if len(tag) % 2),
        )
        for image in describe_dataset(settings)["images"]
    ]


def write_world(folder: Path, records: Iterable[Captioned], noise: float = 0.0) -> None:
    """Write a catalog, and embeddings that are the 0/1 vectors of the tags, with some noise."""
    listed = list(records)
    names = sorted({tag for record in listed for tag in record.tags}) or ["nothing"]
    truth = np.array([[tag in record.tags for tag in names] for record in listed], dtype=np.float32)
    truth += np.random.default_rng(0).normal(scale=noise, size=truth.shape).astype(np.float32)
    rows = dict(zip([record.id for record in listed], truth, strict=True))
    write_store(folder / EMBEDDINGS, "embeddings", [Layer("truth", len(names))], rows)
    write_captions(folder / CAPTIONS, listed)
    write_images(folder / IMAGES, [])


def write_project(folder: Path, records: Iterable[Captioned], **changes: object) -> None:
    """Write a small world with parameters that train for a moment."""
    shutil.copy(ROOT / "params.yaml", folder)
    runtime = {"device": "cpu", "threads": 1}
    change_params(folder, {"train_tagger": SMALL | changes, "tags_page": {"examples": 4}, "runtime": runtime})
    write_world(folder, records)


def settings(**changes: object) -> TrainTagger:
    """The default settings with changes, nested keys as `a__b`."""
    content: dict[str, object] = {}
    for key, value in changes.items():
        put(content, key.replace("__", "."), value)
    found, faults = parse_section({"train_tagger": content}, "train_tagger", TrainTagger)
    assert found is not None, faults
    return found


def inputs(folder: Path, chosen: TrainTagger) -> Inputs:
    """Open the small world for some settings."""
    return read_inputs(folder / EMBEDDINGS, folder / CAPTIONS, chosen)
