from pathlib import Path

import numpy as np
import pytest

from fne.store.arrays import read_arrays
from fne.store.layout import Layer
from fne.store.rows import Rows, write_rows
from tests.support.projects import change_params
from tests.support.stages import IDS, SPLITS, refusal, write_activations, write_catalog


def test_only_training_images_decide_what_is_ordinary(run):
    assert run("standardize").output == "12 train images, 6 features, 0 of them constant (z = 0)\n"
    rows = Rows.open(Path("features/activations")).read(IDS[:12]).astype(np.float64)
    statistics = read_arrays(Path("features/statistics.h5"), "statistics")
    assert statistics["mean"] == pytest.approx(rows.mean(axis=0))
    assert statistics["deviation"] == pytest.approx(rows.std(axis=0))
    assert statistics.texts("ids") == IDS[:12]


def test_a_corrected_caption_leaves_the_statistics_byte_for_byte(run):
    run("standardize")
    before = Path("features/statistics.h5").read_bytes()
    write_catalog(word="corrected")
    run("standardize")
    assert Path("features/statistics.h5").read_bytes() == before


def test_a_collection_without_captions_is_standardized_by_all_its_images(run):
    write_catalog(["gallery"] * len(SPLITS))
    assert run("standardize").output.startswith("20 gallery images, ")


def test_a_catalog_without_images_is_refused_saying_how_to_import_features(run):
    write_rows(Path("features/activations"), "activations", [Layer("conv", 6)], "float32", [], {}, {})
    message = refusal("standardize")
    assert message.startswith("features/activations: holds no images, as with catalog.images 'none'; ")
    assert "`fne import FILE`" in message
    assert "`-S embed.source=FOLDER`" in message


@pytest.mark.parametrize(
    ("source", "remedy"),
    [("features/activations", "run `dvc repro`"), ("features/imported", "import features of all of them")],
)
def test_a_store_that_lacks_images_of_the_catalog_is_refused(run, source, remedy):
    row = np.zeros((1, 6), dtype=np.float32)
    write_rows(Path(source), "activations", [Layer("conv", 6)], "float32", [(0, IDS[:1], row)], {}, {})
    change_params(Path(), {"embed": {"source": source}})
    assert refusal("standardize") == (
        f"{source}: lacks 19 of the catalog's 20 images, the first is '01.png'; {remedy}"
    )


def test_a_value_that_is_not_finite_is_refused_with_image_and_layer(run):
    write_activations(changed={("03.png", 5): np.nan})
    assert "features/activations: row '03.png' has nan in layer 'fc7', column 5" in refusal("standardize")


def test_captions_without_training_images_are_refused(run):
    write_catalog(["val"] * len(SPLITS))
    assert "data/captions.jsonl: has no train images to standardize by; " in refusal("standardize")
