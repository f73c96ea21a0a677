import hashlib
import shutil
from pathlib import Path

import pytest

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
from tests.support.refusals import refused
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
    new = ExternalImage(Path("new.png"), digest, Path("new.png").read_bytes())
    assert parse_query("new.png", catalog) == new
    known = catalog.images["red.png"].sha256
    assert parse_query("photos/red.png", catalog) == CatalogImage("red.png", Path("photos/red.png"), known)
    shutil.copy("photos/red.png", "red.png")
    assert parse_query("red.png", catalog) == CatalogImage("red.png", Path("red.png"), known)


def test_a_file_with_the_id_of_another_image_is_refused(catalog):
    draw(Path("red.png"), "pink", "circle")
    with refused(
        "'red.png' is both a file in this folder and the id of another image", "use ./red.png for the"
    ):
        parse_query("red.png", catalog)
    assert parse_query("./red.png", catalog).id is None


def test_a_file_that_is_not_an_image_is_refused(catalog):
    Path("notes").write_text("hello")
    with refused("notes: not an image of a known format", "use an image file or a sentence"):
        parse_query("notes", catalog)


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
    place = f"{argument!r} is neither a file nor an image id of the catalog "
    with refused(f"{place}({hint}); to search with a sentence, use plain words"):
        parse_query(argument, catalog)
    with refused("'a zebra' is neither a file nor an image id", "(ids look like 'red.png'); name an image"):
        parse_query("a zebra", catalog, images_only=True)
    with refused("(it has no images)"):
        parse_query(argument, CatalogContents({}, {}, Path("photos"), []))


def test_a_project_is_found_above_its_files(tmp_path):
    (tmp_path / "params.yaml").write_bytes((ROOT / "params.yaml").read_bytes())
    found = find_project(tmp_path / "features/embeddings")
    assert found is not None
    assert found.params == tmp_path / "params.yaml"
    (tmp_path / "params.yaml").write_text("model:\n  depth: 3\n")  # of another program
    assert find_project(tmp_path / "features/embeddings") is None
