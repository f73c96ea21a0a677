"""Small data sets, features and photographs that are drawn, for the tiny runs of programs that need files."""

from pathlib import Path

import numpy as np

from fne.datasets.demo.dataset import Render, write_dataset
from fne.features.import_features import ArrayNames, import_rows

LAYERS = {"conv5_2": 6, "conv5_3": 8}  # features


def draw_dataset(folder: Path, images: int = 20) -> Path:
    """Draw a data set like that of the demo into a new folder below `folder`; half are training images."""
    write_dataset(Render(seed=0, images=images, val_share=0.25, test_share=0.25, side=64), folder / "drawn")
    return folder / "drawn"


def draw_features(dataset: Path) -> Path:
    """Write random features of two layers for all images of a drawn data set."""
    ids = sorted(path.name for path in (dataset / "images").iterdir())
    layers = np.repeat(list(LAYERS), list(LAYERS.values()))
    values = np.random.default_rng(0).random((len(ids), len(layers)), dtype=np.float32)
    path = dataset.parent / "drawn.npz"
    np.savez(path, features=values, ids=ids, layers=layers)
    return path


def draw_store(dataset: Path) -> Path:
    """Write the same features as a row store."""
    store = dataset.parent / "drawn_features"
    import_rows(draw_features(dataset), store, ArrayNames())
    return store
