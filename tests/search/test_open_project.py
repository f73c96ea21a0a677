import hashlib
import shutil
from pathlib import Path

import pytest

from fne.core.errors import InputError
from fne.search.open_project import (
    CatalogContents,
    CatalogImage,
    ExternalImage,
    Project,
    find_project,
    parse_query,
)
from fne.store.artifact import Artifact
from fne.store.catalog import Captioned, Image
from tests.support.imports import ROOT
from tests.support.projects import change_params
from tests.support.search import draw


@pytest.mark.parametrize("root", ["photos", "photos/dataset.json", "photos/annotations/captions_val.json"])
def test_images_are_found_below_the_root_even_if_it_is_a_missing_annotation_file(project, root):
    change_params(project, {"catalog": {"root": root}})
    catalog = Project(Path("params.yaml")).catalog
    assert catalog.file("red-circle.png") == Path("photos/red-circle.png")


@pytest.fixture
def catalog(tmp_path, monkeypatch) -> CatalogContents:
    """A catalog of two images, one of which has only features."""
    monkeypatch.chdir(tmp_path)
    draw(Path("photos/red.png"), "red", "circle")
    content = Path("photos/red.png").read_bytes()
    image = Image("red.png", "red.png", hashlib.sha256(content).hexdigest(), len(content), 72, 64)
    captioned = {each: Captioned(each, "test", ("a shape",), ()) for each in ("red.png", "dog")}
    artifact = Artifact(Path(), "images", "")
    return CatalogContents({"red.png": image}, captioned, Path("photos"), (artifact, artifact))


@pytest.mark.parametrize(
    "text", ["a dog", "dogs", "either/or, who knows", "x" * 5000, "a\0b", "50 % off", "-"]
)
def test_plain_words_are_a_sentence(catalog, text):
    assert parse_query(text, catalog) == text


def test_an_id_is_an_image_with_or_without_a_file(catalog):
    image = catalog.images["red.png"]
    assert parse_query("red.png", catalog) == CatalogImage("red.png", Path("photos/red.png"), image.sha256)
    assert parse_query("dog", catalog) == CatalogImage("dog", None, None)


def test_a_file_with_the_bytes_of_a_catalog_image_is_that_image(catalog):
    draw(Path("new.png"), "pink", "circle")
    digest = hashlib.sha256(Path("new.png").read_bytes()).hexdigest()
    assert parse_query("new.png", catalog) == ExternalImage(
        Path("new.png"), digest, Path("new.png").read_bytes()
    )
    known = catalog.images["red.png"].sha256
    assert parse_query("photos/red.png", catalog) == CatalogImage("red.png", Path("photos/red.png"), known)
    shutil.copy("photos/red.png", "red.png")
    assert parse_query("red.png", catalog) == CatalogImage("red.png", Path("red.png"), known)


def test_a_file_with_the_id_of_another_image_is_refused(catalog):
    draw(Path("red.png"), "pink", "circle")
    with pytest.raises(InputError) as error:
        parse_query("red.png", catalog)
    assert error.value.message == (
        "'red.png' is both a file in this folder and the id of another image of the catalog; "
        "use ./red.png for the file, or another working folder for the image of the catalog"
    )
    assert parse_query("./red.png", catalog).id is None


def test_a_file_that_is_not_an_image_is_refused(catalog):
    Path("notes").write_text("hello")
    with pytest.raises(InputError) as error:
        parse_query("notes", catalog)
    assert error.value.message == (
        "notes: not an image of a known format (JPEG, PNG, GIF, BMP, TIFF, WEBP, PPM); "
        "use an image file or a sentence"
    )


@pytest.mark.parametrize(
    ("argument", "hint"),
    [
        ("read.png", "did you mean 'red.png'?"),
        ("holiday/read.png", "did you mean 'red.png'?"),
        ("my holiday.JPG", "ids look like 'red.png'"),
        ("~/pictures", "ids look like 'red.png'"),
    ],
)
def test_an_argument_that_looks_like_a_file_name_is_not_a_sentence(catalog, argument, hint):
    with pytest.raises(InputError) as error:
        parse_query(argument, catalog)
    assert error.value.message == (
        f"{argument!r} is neither a file nor an image id of the catalog ({hint}); "
        "to search with a sentence, use plain words"
    )


def test_a_sentence_is_refused_if_only_images_are_allowed(catalog):
    with pytest.raises(InputError) as error:
        parse_query("a zebra", catalog, images_only=True)
    assert error.value.message == (
        "'a zebra' is neither a file nor an image id of the catalog (ids look like 'red.png'); name an image"
    )


def test_a_project_is_found_above_its_files(tmp_path):
    (tmp_path / "params.yaml").write_bytes((ROOT / "params.yaml").read_bytes())
    found = find_project(tmp_path / "features/embeddings")
    assert found is not None
    assert found.params == tmp_path / "params.yaml"


def test_parameters_of_another_program_are_no_project(tmp_path):
    (tmp_path / "params.yaml").write_text("model:\n  depth: 3\n")
    assert find_project(tmp_path / "features/embeddings") is None


def test_a_catalog_without_images_has_no_example_of_an_id():
    with pytest.raises(InputError) as caught:
        parse_query("a.png", CatalogContents({}, {}, Path("photos"), []))
    assert "(it has no images)" in caught.value.message
