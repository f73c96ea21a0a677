from pathlib import Path

import numpy as np
import pytest

from fne.store.arrays import read_arrays
from fne.store.layout import Layer
from fne.store.rows import Rows
from fne.store.writer import write_rows
from tests.stages.conftest import IDS, SPLITS, write_catalog


def test_only_training_images_decide_what_is_ordinary(run):
    assert run("standardize").output == "12 train images, 6 features, 0 of them constant (z = 0)\n"
    rows = Rows.open(Path("features/activations")).read(IDS[:12]).astype(np.float64)
    statistics = read_arrays(Path("features/statistics.h5"), "statistics")
    assert statistics["mean"] == pytest.approx(rows.mean(axis=0))
    assert statistics["deviation"] == pytest.approx(rows.std(axis=0))


def test_a_corrected_caption_leaves_the_statistics_byte_for_byte(run):
    run("standardize")
    before = Path("features/statistics.h5").read_bytes()
    write_catalog(word="corrected")
    run("standardize")
    assert Path("features/statistics.h5").read_bytes() == before


def test_a_collection_without_captions_is_standardized_by_all_its_images(run):
    write_catalog(["gallery"] * len(SPLITS))
    assert run("standardize").output.startswith("20 gallery images, ")


def test_a_catalog_without_images_is_refused(run):
    write_rows(Path("features/activations"), "activations", [Layer("conv", 6)], "float32", [], {}, {})
    result = run("standardize")
    assert (result.exit_code, result.stderr) == (
        2,
        "Error: features/activations: holds no images; with catalog.images 'none' there is nothing to standardize\n",
    )


def test_captions_without_training_images_are_refused(run):
    write_catalog(["val"] * len(SPLITS))
    result = run("standardize")
    assert (result.exit_code, result.stderr) == (
        2,
        "Error: data/captions.jsonl: has no train images to standardize by; see `catalog` in params.yaml\n",
    )
