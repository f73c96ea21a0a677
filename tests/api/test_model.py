import shutil

import numpy as np
import pytest

import fne
from fne import InputError
from tests.support.search import draw


@pytest.fixture
def model(finished, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return fne.load_model(finished)


def test_a_model_describes_itself(finished, model):
    dim = fne.open_store("vectors/images", root=finished).read().shape[1]
    assert (model.dim, model.similarity, model.settings["epochs"]) == (dim, "cosine", [2])
    assert (
        repr(model)
        == f"<Model {finished / 'models/matching.safetensors'}: {dim} dimensions, similarity 'cosine'>"
    )


def test_captions_have_the_vectors_that_encode_wrote(finished, model):
    catalog, stored = fne.load_catalog(finished), fne.open_store("vectors/captions", root=finished)
    ids = stored.split_ids("test")
    captions = [caption for image in catalog.ids("test") for caption in catalog.captions[image]]
    np.testing.assert_allclose(model.encode_sentences(captions), stored[ids], rtol=1e-4, atol=1e-6)


def test_a_text_encoder_without_a_numpy_implementation_is_computed_with_torch(model, monkeypatch):
    sentences = ["a red circle", "something blue", "green"]
    expected = model.encode_sentences(sentences)
    monkeypatch.setattr("fne.search.engine.SENTENCE_ENCODERS", {})
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
    file = finished / "models/matching.safetensors"
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
            "'nothing' is neither a file nor an image id of the catalog",
        ),
    ],
)
def test_a_wrong_use_is_refused(model, use, message):
    with pytest.raises(InputError) as error:
        use(model)
    assert error.value.message == message


def test_a_model_outside_of_projects_needs_a_root(finished, tmp_path):
    shutil.copy(finished / "models/matching.safetensors", tmp_path)
    with pytest.raises(InputError) as error:
        fne.load_model(tmp_path / "matching.safetensors")
    assert error.value.message == (
        f"{tmp_path / 'matching.safetensors'}: no project above this file; pass the project's folder as root"
    )


def test_a_vocabulary_of_another_model_is_refused(finished, tmp_path):
    project = shutil.copytree(finished, tmp_path / "copy")
    vocabulary = project / "captions/vocabulary.json"
    text = vocabulary.read_text()
    vocabulary.write_text(text.replace("circle", "ring"))
    with pytest.raises(InputError, match=r"vocabulary\.json: damaged"):
        fne.load_model(project)
