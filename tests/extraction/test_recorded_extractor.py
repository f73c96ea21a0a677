import shutil
from pathlib import Path

import numpy as np
import pytest

from fne.extraction.recorded_extractor import (
    Agreement,
    choose_photos,
    farthest_layer,
    record_network,
    recorded_extraction,
    recorded_input,
)
from fne.extraction.settings import CAFFE, TORCHVISION
from fne.extraction.weights import Weights
from fne.store.artifact import Artifact, merge
from fne.store.layout import Layer
from fne.store.rows import Rows
from tests.support.extraction import draw, red_extractor, redness
from tests.support.features import write_store
from tests.support.refusals import refused

WEIGHTS = Weights(Artifact(Path("w"), "weights", "digest", {"kind": "file"}, {}), {})
EXTRACTED = {
    "backbone": "alexnet", "activations": "post_relu", "resize": "squash", "crops": "center", "precision": "float32",
    "layers": "all", "views": "mean",
}  # fmt: skip
LAYERS = [Layer("a", 1), Layer("b", 1)]


@pytest.fixture(autouse=True)
def photos(tmp_path, monkeypatch):
    """Draw three photos."""
    monkeypatch.chdir(tmp_path)
    Path("photos").mkdir()
    for number in (1, 5, 9):
        draw(Path("photos"), number)


def imported(scale: float = 1.0, layers=LAYERS) -> Path:
    """Write imported features of five images, of which three have photos."""
    values = {
        f"{each}.png": np.array([redness(each), 2 * scale * redness(each)], "float16")
        for each in (1, 3, 5, 7, 9)
    }
    write_store(Path("store"), "activations", layers, values, "float16", settings={"source": "x.npz"})
    return Path("store")


def test_features_that_the_extractor_computes_get_its_record_and_keep_their_rows():
    before = Rows.open(imported()).read(["1.png", "9.png"])
    computed = []
    found = record_network(Path("store"), Path("photos"), red_extractor(computed), WEIGHTS)
    assert found == Agreement(3, found.difference)
    assert 0 < found.difference < 1e-3  # the rounding of float16
    assert computed == [1, 1, 1]
    rows = Rows.open(Path("store"))
    assert np.array_equal(rows.read(["1.png", "9.png"]), before)
    assert rows.artifact.settings == red_extractor().kind | {
        "imported": {"source": "x.npz"},
        "checked": {"photos": 3, "difference": float(f"{found.difference:.2g}")},
    }
    assert rows.artifact.lineage == merge(WEIGHTS.artifact)


def test_a_new_image_can_then_be_extracted_as_the_record_says():
    extractor = red_extractor()
    extractor.kind.update(activations="post_relu", resize="squash", layers="all", views="mean")
    record_network(imported(), Path("photos"), extractor, WEIGHTS)
    store = Rows.open(Path("store")).artifact
    embeddings = Artifact(Path("e"), "embeddings", "", {}, merge(store))
    assert recorded_extraction(embeddings)["backbone"] == "alexnet"


@pytest.mark.parametrize(
    ("changes", "folder", "parts"),
    [
        ({"scale": 1.01}, "photos",
         ["photos/1.png: `extract` in params.yaml computes another row than that of store: b differs by 0.01 of its ",
          "more than 0.005; correct extract.weights, ", "or leave out --photos"]),
        ({"layers": [Layer("a", 2)]}, "photos",
         ["store: has other layers (1 layers, the last is a) than `extract` in params.yaml computes (2 layers, the ",
          "is b); correct extract.backbone, ", "or leave out --photos"]),
        ({}, "empty",
         ["empty: has no photo of the 5 images of store, whose first id is '1.png'; name the folder that their ids "]),
        ({}, "damaged", ["damaged/5.png: cannot be decoded (the file is empty); remove it from the folder"]),
    ],
)  # fmt: skip
def test_photos_that_do_not_confirm_the_network_are_refused_and_nothing_is_recorded(changes, folder, parts):
    Path("empty").mkdir()
    shutil.copytree("photos", "damaged")
    Path("damaged/5.png").write_bytes(b"")
    with refused(*parts):
        record_network(imported(**changes), Path(folder), red_extractor(), WEIGHTS)
    assert Rows.open(Path("store")).artifact.settings == {"source": "x.npz"}


def test_photos_are_spread_over_the_images_and_never_outside_the_folder(tmp_path):
    ids = [f"{number:03d}.jpg" for number in range(100)]
    for name in (*(f"photos/{each}" for each in ids), "secret.jpg"):
        (tmp_path / name).touch()
    outside = ["../secret.jpg", str(tmp_path / "secret.jpg")]
    assert choose_photos([*outside, *ids], Path("photos")) == ids[:96:6]
    assert choose_photos(outside, Path("photos")) == []


def test_a_layer_that_should_be_zero_differs_completely():
    zeros, layers = np.zeros(2), [Layer("a", 1), Layer("b", 1)]
    assert farthest_layer(zeros, zeros, layers) == ("a", 0.0)
    assert farthest_layer(np.array([0, 1e-9]), zeros, layers) == ("b", 1.0)


def origin(settings, **lineage):
    entries = {"activations": {"digest": "a", "settings": settings}} | lineage
    return Artifact("features/embeddings", "embeddings", "", {}, entries)


def test_a_new_image_cannot_be_embedded_like_imported_features():
    with refused(
        "features/embeddings was made from imported features, and the network that", "unknown; search with"
    ):
        recorded_extraction(origin({}))


@pytest.mark.parametrize("fed", [CAFFE, TORCHVISION])
def test_images_are_fed_as_the_record_says(fed):
    recorded = EXTRACTED | {"input": fed.model_dump()}
    assert recorded_input(origin(recorded, weights={"digest": "w", "settings": {}})) == fed
