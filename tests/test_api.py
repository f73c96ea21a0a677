"""The Python interface, from outside."""

import shutil
import subprocess
import sys
from types import ModuleType

import numpy as np
import pytest

import fne
from fne import InputError
from fne.store.catalog import Captioned, write_captions, write_images
from fne.store.layout import Layer
from fne.store.rows import write_rows
from tests.support.imports import ROOT
from tests.support.refusals import refused
from tests.support.search import draw


def test_importing_fne_imports_no_numpy_and_reading_artifacts_no_torch():
    program = "import sys, fne; dir(fne); print(sorted({'torch', 'numba', 'numpy'} & set(sys.modules)))"
    program += "; [getattr(fne, name) for name in fne.__all__]; print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\nFalse\n"


@pytest.mark.parametrize("name", fne.__all__)
def test_every_public_name_is_there_and_documented(name):
    assert name in dir(fne)
    assert getattr(fne, name).__doc__


def test_other_names_are_errors():
    assert dir(fne) == sorted(fne.__all__)
    with pytest.raises(AttributeError, match="module 'fne' has no attribute 'open_shop'"):
        fne.open_shop  # noqa: B018


def test_a_catalog_is_found_from_any_folder(finished, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    catalog = fne.load_catalog(finished)
    assert len(catalog) == 24
    assert list(catalog)[:2] == ["blue-circle.png", "blue-line.png"]
    assert "red-circle.png" in catalog
    assert catalog.split["red-circle.png"] == "train"
    assert catalog.captions["red-line.png"] == ("A red line.", "Something red")
    assert catalog.tags["red-line.png"] == ("red", "line")
    assert repr(catalog) == "<Catalog of 24 images: 8 train, 4 val, 8 test, 4 gallery>"
    assert len(catalog.ids("gallery")) == 4
    assert catalog.ids() == list(catalog)


def test_images_are_opened_as_the_pipeline_decodes_them(finished):
    catalog = fne.load_catalog(finished)
    assert catalog.file("red-circle.png") == finished / "photos/red-circle.png"
    assert catalog.open("red-circle.png").size == (72, 64)
    assert catalog.open("red-circle.png").mode == "RGB"


def test_records_make_a_data_frame(finished, monkeypatch):
    class DataFrame:
        def __init__(self, rows):
            self.rows, self.index = rows, None

        def set_index(self, name):
            self.index = name
            return self

    pandas = ModuleType("pandas")
    pandas.DataFrame = DataFrame  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pandas", pandas)
    frame = fne.load_catalog(finished).dataframe()
    assert frame.index == "id"
    image = {"id": "blue-circle.png", "split": "train", "width": 72, "height": 64}
    image |= {
        "file": str(finished / "photos/blue-circle.png"),
        "captions": ["A blue circle.", "Something blue"],
    }
    assert frame.rows[0] == image | {"tags": ["blue", "circle"], "user_tags": []}
    monkeypatch.setitem(sys.modules, "pandas", None)
    with refused("pandas is not installed; run `pip install pandas`, or use records()"):
        fne.load_catalog(finished).dataframe()


def test_captions_without_images_have_no_files(tmp_path):
    (tmp_path / "params.yaml").write_bytes((ROOT / "params.yaml").read_bytes())
    write_images(tmp_path / "data/images.jsonl", [])
    record = Captioned("a", "train", ("A dog.",), ("dog",), user_tags=("animal",))
    write_captions(tmp_path / "data/captions.jsonl", [record])
    catalog = fne.load_catalog(tmp_path)
    known = {"id": "a", "split": "train", "captions": ["A dog."], "tags": ["dog"], "user_tags": ["animal"]}
    assert catalog.records() == [known | dict.fromkeys(("file", "width", "height"))]
    with refused("'a' has no file: the catalog was made with catalog.images=none"):
        catalog.file("a")


def test_a_wrong_use_of_a_catalog_is_refused(finished):
    catalog = fne.load_catalog(finished)
    with refused("split: 'dev' is not one of 'train', 'val', 'test', 'gallery'"):
        catalog.ids("dev")
    with refused("'nothing.png' is not an image of the catalog; ids() lists them"):
        catalog.open("nothing.png")


def test_an_image_that_is_gone_is_named(finished, tmp_path):
    project = shutil.copytree(finished, tmp_path / "copy")
    (project / "photos/red-circle.png").unlink()
    with pytest.raises(InputError, match="red-circle.png: "):
        fne.load_catalog(project).open("red-circle.png")


def test_metrics_are_those_that_the_stages_wrote(finished):
    metrics = fne.load_metrics(finished)
    assert set(metrics) >= {"retrieval", "intervals"}
    assert metrics["retrieval"]["test_full"]["images"] == 8
    assert 0 <= metrics["retrieval"]["test_full"]["rsum"] <= 600


def test_damaged_metrics_are_named(finished, tmp_path):
    (tmp_path / "params.yaml").write_bytes((finished / "params.yaml").read_bytes())
    with pytest.raises(InputError, match=r"metrics: no metrics; "):
        fne.load_metrics(tmp_path)
    (tmp_path / "metrics").mkdir()
    (tmp_path / "metrics/retrieval.json").write_text("{")
    with pytest.raises(InputError, match=r"retrieval.json: damaged \(.*\); run `dvc repro`"):
        fne.load_metrics(tmp_path)


@pytest.fixture
def model(finished, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return fne.load_model(finished)


def test_a_model_describes_itself(finished, model):
    dim = fne.open_store("vectors/images", root=finished).read().shape[1]
    assert (model.dim, model.similarity, model.settings["epochs"]) == (dim, "cosine", [2])
    file = finished / "models/matching/model.safetensors"
    assert repr(model) == f"<Model {file}: {dim} dimensions, similarity 'cosine'>"


def test_captions_have_the_vectors_that_encode_wrote(finished, model):
    catalog, stored = fne.load_catalog(finished), fne.open_store("vectors/captions", root=finished)
    ids = stored.split_ids("test")
    captions = [caption for image in catalog.ids("test") for caption in catalog.captions[image]]
    np.testing.assert_allclose(model.encode_sentences(captions), stored[ids], rtol=1e-4, atol=1e-6)


def test_another_text_encoder_is_computed_with_torch(model, monkeypatch):
    sentences = ["a red circle", "something blue", "green"]
    expected = model.encode_sentences(sentences)
    monkeypatch.setattr("fne.search.snapshot.TEXT_ENCODER", "none")
    vars(model).pop("_encoder")
    np.testing.assert_allclose(model.encode_sentences(sentences), expected, rtol=1e-4, atol=1e-6)


def test_images_of_the_catalog_have_the_vectors_that_encode_wrote(finished, model):
    stored = fne.open_store("vectors/images", root=finished)
    ids = ["red-circle.png", "blue-line.png", "red-circle.png"]
    np.testing.assert_array_equal(model.encode_images(ids), stored[ids])


def test_without_stored_vectors_they_are_computed_from_embeddings(finished, tmp_path):
    project = shutil.copytree(finished, tmp_path / "copy")
    expected = fne.load_model(project).encode_images(["red-circle.png"])
    shutil.rmtree(project / "vectors")
    found = fne.load_model(project).encode_images(["red-circle.png"])
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_a_copy_of_an_image_has_its_vector_and_a_new_image_its_own(finished, model, tmp_path):
    shutil.copy(finished / "photos/red-circle.png", tmp_path / "copy.png")
    draw(tmp_path / "new.png", "pink", "circle")
    vectors = model.encode_images(["new.png", tmp_path / "copy.png", "red-circle.png"])
    np.testing.assert_array_equal(vectors[1], vectors[2])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    best = fne.search(tmp_path / "new.png", root=finished, k=1).matches[0]
    captions = fne.open_store("vectors/captions", root=finished)
    assert float(vectors[0] @ captions[best.id]) == pytest.approx(best.score, abs=1e-5)


def test_nothing_becomes_no_vectors(model):
    assert model.encode_sentences([]).shape == (0, model.dim)
    assert model.encode_images([]).shape == (0, model.dim)


def test_a_model_file_is_loaded_by_its_path(finished, tmp_path, model):
    file = finished / "models/matching/model.safetensors"
    expected = model.encode_sentences(["a red circle"])
    np.testing.assert_array_equal(fne.load_model(file).encode_sentences(["a red circle"]), expected)
    shutil.copy(file, tmp_path / "best.safetensors")
    elsewhere = fne.load_model(tmp_path / "best.safetensors", root=finished)
    np.testing.assert_array_equal(elsewhere.encode_sentences(["a red circle"]), expected)
    assert fne.load_model(root=finished).path == file


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (
            lambda model: model.encode_sentences("a dog"),
            "sentences: expected a list of sentences, got 'a dog'",
        ),
        (lambda model: model.encode_images("a.jpg"), "images: expected a list of images, got 'a.jpg'"),
        (
            lambda model: model.encode_images(["nothing"]),
            "'nothing' is neither a file nor an image id of the",
        ),
    ],
)
def test_a_wrong_use_of_a_model_is_refused(model, use, message):
    with refused(message):
        use(model)


def test_a_model_outside_of_projects_needs_a_root(finished, tmp_path):
    shutil.copy(finished / "models/matching/model.safetensors", tmp_path)
    with refused("matching.safetensors: no project above this file; pass the project's folder as root"):
        fne.load_model(tmp_path / "matching.safetensors")
    with refused(
        f"{tmp_path}: not the folder of a project (params.yaml is missing); pass its folder as root"
    ):
        fne.open_store("features/embeddings", root=tmp_path)
    with refused("nothing: no row store (manifest.json is missing)"):
        fne.open_store(tmp_path / "nothing")


def test_a_vocabulary_of_another_model_is_refused(finished, tmp_path):
    project = shutil.copytree(finished, tmp_path / "copy")
    vocabulary = project / "captions/vocabulary.json"
    text = vocabulary.read_text()
    vocabulary.write_text(text.replace("circle", "ring"))
    with pytest.raises(InputError, match=r"vocabulary\.json: damaged"):
        fne.load_model(project)


@pytest.fixture
def plain(tmp_path):
    """Two shards of float32 rows, outside of any project."""
    rows = np.arange(12, dtype=np.float32).reshape(4, 3)
    shards = [(0, ["a", "b"], rows[:2]), (1, ["c", "d"], rows[2:])]
    layers = [Layer("conv", 1), Layer("fc", 2)]
    write_rows(tmp_path / "store", "activations", layers, "float32", shards, {"crops": "ten"}, {})
    return tmp_path / "store"


def test_a_store_describes_itself(plain):
    store = fne.open_store(plain)
    assert (store.name, store.shape, len(store), store.ids) == ("activations", (4, 3), 4, [*"abcd"])
    assert (store.layers, store.settings, store.dtype) == ({"conv": 1, "fc": 2}, {"crops": "ten"}, np.float32)
    assert "a" in store
    assert "e" not in store
    assert repr(store) == "<Store of activations: 4 rows of 3 float32 values in 2 layers>"


def test_rows_are_read_by_id_and_layer(plain):
    store = fne.open_store(str(plain))
    assert store["c"].tolist() == [6, 7, 8]
    assert store[["c", "a"]].tolist() == [[6, 7, 8], [0, 1, 2]]
    assert store.read(layer="fc").tolist() == [[1, 2], [4, 5], [7, 8], [10, 11]]
    assert store.read(["b"], layer=["fc", "conv"]).tolist() == [[4, 5, 3]]
    assert store.read(["b"], dtype=np.float64).dtype == np.float64
    blocks = [(ids, rows.tolist()) for ids, rows in store.blocks(3, layer="conv")]
    assert blocks == [(["a", "b", "c"], [[0], [3], [6]]), (["d"], [[9]])]


def test_ternary_rows_are_unpacked(finished):
    store = fne.open_store(finished / "features/embeddings")
    assert store.dtype == np.int8
    assert set(np.unique(store.read())) == {-1, 0, 1}
    with refused("has ternary rows, which cannot be mapped as one array"):
        store.array()


def test_a_split_is_read_from_any_folder(finished, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    images = fne.open_store("vectors/images", root=finished)
    captions = fne.open_store(finished / "vectors/captions")
    catalog = fne.load_catalog(finished)
    assert images.split_ids("test") == catalog.ids("test")
    np.testing.assert_array_equal(images.read(split="test"), images.read(catalog.ids("test")))
    assert captions.read(split="val").shape == (8, images.read(split="test").shape[1])
    assert captions.split_ids("val")[:2] == ["blue-square.png#0", "blue-square.png#1"]
    assert [len(ids) for ids, _ in captions.blocks(10, split="train")] == [10, 6]


def test_one_shard_of_plain_numbers_is_mapped_as_it_is(finished):
    store = fne.open_store("vectors/images", root=finished)
    rows = store.array()
    assert isinstance(rows, np.memmap)
    assert not rows.flags.writeable
    np.testing.assert_array_equal(rows, store.read())


@pytest.mark.parametrize("name", ["features/activations", "features/embeddings"])
def test_other_stores_become_a_mapped_file(finished, tmp_path, name):
    store = fne.open_store(name, root=finished)
    rows = store.array(tmp_path / "rows.npy")
    assert isinstance(rows, np.memmap)
    assert (rows.dtype, rows.flags.writeable) == (store.dtype, False)
    np.testing.assert_array_equal(rows, store.read())
    np.testing.assert_array_equal(np.load(tmp_path / "rows.npy"), rows)


def test_an_empty_store_is_an_empty_array(tmp_path):
    write_rows(tmp_path / "store", "activations", [Layer("conv", 3)], "float32", [], {}, {})
    store = fne.open_store(tmp_path / "store")
    assert (store.array().shape, store.read().shape, len(store)) == ((0, 3), (0, 3), 0)


def test_a_damaged_shard_is_refused(plain):
    shard = plain / "shard-0001.h5"
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    with pytest.raises(InputError, match="shard-0001.h5: damaged: expected"):
        fne.open_store(plain)["c"]
    shard.unlink()
    assert fne.open_store(plain).shape == (4, 3)  # opening reads no shard


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda store: store["e"], "has no row for 1 of 1 ids, the first is 'e'; run `dvc repro`"),
        (lambda store: store.read("a"), "ids: expected a list of ids, got 'a'"),
        (lambda store: store.read(["a"], split="train"), "give either ids or split"),
        (lambda store: store.read(split="dev"), "split: 'dev' is not one of 'train', 'val', 'test', 'gallery'"),
        (lambda store: store.read(split="train"), "no project above this folder says which images are in a split; pass"),
        (lambda store: store.read(layer="fc7"), "has no layer 'fc7'; it has conv, fc"),
        (lambda store: store.array(), "has 2 shards, which cannot be mapped as one array; use array('rows.npy') to"),
        (lambda store: store.array(store.path / "manifest.json"), "manifest.json: exists; map it with numpy.load("),
    ],
)  # fmt: skip
def test_a_wrong_use_of_a_store_is_refused(plain, use, message):
    with refused(message):
        use(fne.open_store(plain))
