import hashlib
import shutil
from pathlib import Path

import pytest

from fne.core.errors import InputError
from fne.retrieval.project import Catalog
from fne.retrieval.query import Known, New, understand
from fne.store.catalog import Captioned, Image
from fne.store.lineage import Artifact
from tests.retrieval.projects import draw


@pytest.fixture
def catalog(tmp_path, monkeypatch) -> Catalog:
    """Two images, one of which has features only."""
    monkeypatch.chdir(tmp_path)
    draw(Path("photos/red.png"), "red", "circle")
    content = Path("photos/red.png").read_bytes()
    image = Image("red.png", "red.png", hashlib.sha256(content).hexdigest(), len(content), 72, 64)
    captioned = {each: Captioned(each, "test", ("a shape",), ()) for each in ("red.png", "dog")}
    artifact = Artifact(Path(), "images", "")
    return Catalog({"red.png": image}, captioned, Path("photos"), (artifact, artifact))


@pytest.mark.parametrize(
    "text", ["a dog", "dogs", "either/or, who knows", "x" * 5000, "a\0b", "50 % off", "-"]
)
def test_plain_words_are_a_sentence(catalog, text):
    assert understand(text, catalog) == text


def test_an_id_is_an_image_with_or_without_a_file(catalog):
    image = catalog.images["red.png"]
    assert understand("red.png", catalog) == Known("red.png", Path("photos/red.png"), image.sha256)
    assert understand("dog", catalog) == Known("dog", None, None)


def test_a_file_is_an_image_and_one_of_the_catalog_if_it_has_its_bytes(catalog):
    draw(Path("new.png"), "pink", "circle")
    digest = hashlib.sha256(Path("new.png").read_bytes()).hexdigest()
    assert understand("new.png", catalog) == New(Path("new.png"), digest)
    known = catalog.images["red.png"].sha256
    assert understand("photos/red.png", catalog) == Known("red.png", Path("photos/red.png"), known)
    shutil.copy("photos/red.png", "red.png")
    assert understand("red.png", catalog) == Known("red.png", Path("red.png"), known)


def test_a_file_with_the_id_of_another_image_is_refused(catalog):
    draw(Path("red.png"), "pink", "circle")
    with pytest.raises(InputError) as error:
        understand("red.png", catalog)
    assert error.value.message == (
        "'red.png' is a file here and the id of another image of the catalog; "
        "write ./red.png for the file, or go to another folder to mean the catalog's"
    )
    assert understand("./red.png", catalog).id is None


def test_a_file_that_is_no_image_is_refused(catalog):
    Path("notes").write_text("hello")
    with pytest.raises(InputError) as error:
        understand("notes", catalog)
    assert error.value.message == (
        "notes: not an image of a known format (JPEG, PNG, GIF, BMP, TIFF, WEBP, PPM); "
        "name an image file, or ask with a sentence"
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
def test_what_looks_like_a_name_is_no_sentence(catalog, argument, hint):
    with pytest.raises(InputError) as error:
        understand(argument, catalog)
    assert error.value.message == (
        f"{argument!r} is neither a file nor the id of an image of the catalog ({hint}); "
        "to ask with a sentence, write it in plain words"
    )


def test_a_sentence_is_refused_where_only_images_can_be_asked_for(catalog):
    with pytest.raises(InputError) as error:
        understand("a zebra", catalog, images_only=True)
    assert error.value.message == (
        "'a zebra' is neither a file nor the id of an image of the catalog (ids look like 'red.png'); "
        "--by compares images"
    )
