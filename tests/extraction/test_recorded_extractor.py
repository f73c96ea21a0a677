from pathlib import Path

import numpy as np
import pytest

from fne.core.errors import InputError
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
from fne.store.layout import Layer, plan_shards
from fne.store.rows import Rows, write_rows
from tests.support.extraction import draw, red_extractor, redness

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


def imported(scale: float = 1.0, layers=LAYERS, dtype: str = "float16") -> Path:
    """Write imported features of five images, of which three have photos."""
    numbers = [1, 3, 5, 7, 9]
    values = np.array([[redness(each), 2 * scale * redness(each)] for each in numbers], dtype=dtype)
    ids = [f"{number}.png" for number in numbers]
    shards = [
        (number, own, values[[ids.index(each) for each in own]])
        for number, own in plan_shards(ids, 1).items()
    ]
    write_rows(Path("store"), "activations", layers, dtype, shards, {"source": "x.npz"}, {})
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


def test_other_rows_are_refused_and_nothing_is_recorded():
    with pytest.raises(InputError) as caught:
        record_network(imported(scale=1.01), Path("photos"), red_extractor(), WEIGHTS)
    assert caught.value.message == (
        "photos/1.png: `extract` in params.yaml computes another row than that of store: b differs by 0.01 of "
        "its length, more than 0.005; correct extract.weights, resize, crops or activations, or leave out "
        "--photos"
    )
    assert Rows.open(Path("store")).artifact.settings == {"source": "x.npz"}


def test_other_layers_are_refused():
    with pytest.raises(InputError) as caught:
        record_network(imported(layers=[Layer("a", 2)]), Path("photos"), red_extractor(), WEIGHTS)
    assert caught.value.message == (
        "store: has other layers (1 layers, the last is a) than `extract` in params.yaml computes (2 layers, "
        "the last is b); correct extract.backbone, weights or layers, or leave out --photos"
    )


def test_a_folder_without_photos_of_the_features_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError) as caught:
        record_network(imported(), Path("empty"), red_extractor(), WEIGHTS)
    assert caught.value.message == (
        "empty: has no photo of the 5 images of store, whose first id is '1.png'; name the folder that their "
        "ids start from"
    )


def test_a_damaged_photo_is_named():
    Path("photos/5.png").write_bytes(b"")
    with pytest.raises(InputError) as caught:
        record_network(imported(), Path("photos"), red_extractor(), WEIGHTS)
    assert caught.value.message == (
        "photos/5.png: cannot be decoded (the file is empty); remove it from the folder"
    )


def test_photos_are_spread_over_the_images_and_never_outside_the_folder(tmp_path):
    for number in range(100):
        (tmp_path / "photos" / f"{number:03d}.jpg").touch()
    (tmp_path / "secret.jpg").touch()
    ids = [f"{number:03d}.jpg" for number in range(100)]
    outside = ["../secret.jpg", str(tmp_path / "secret.jpg")]
    assert choose_photos([*outside, *ids], Path("photos")) == [
        f"{number:03d}.jpg" for number in range(0, 96, 6)
    ]
    assert choose_photos(outside, Path("photos")) == []


def test_a_layer_that_should_be_zero_differs_completely():
    zeros, layers = np.zeros(2), [Layer("a", 1), Layer("b", 1)]
    assert farthest_layer(zeros, zeros, layers) == ("a", 0.0)
    assert farthest_layer(np.array([0, 1e-9]), zeros, layers) == ("b", 1.0)


def origin(settings, **lineage):
    entries = {"activations": {"digest": "a", "settings": settings}} | lineage
    return Artifact("features/embeddings", "embeddings", "", {}, entries)


def test_a_new_image_cannot_be_embedded_like_imported_features():
    with pytest.raises(InputError) as error:
        recorded_extraction(origin({}))
    assert error.value.message == (
        "features/embeddings was made from imported features, and the network that computed them is unknown; "
        "search with an image of the catalog"
    )


@pytest.mark.parametrize("fed", [CAFFE, TORCHVISION])
def test_images_are_fed_as_the_record_says(fed):
    recorded = EXTRACTED | {"input": fed.model_dump()}
    assert recorded_input(origin(recorded, weights={"digest": "w", "settings": {}})) == fed
