import shutil
import sys
from types import ModuleType

import pytest

import fne
from fne import InputError
from fne.store.catalog import Captioned, write_captions, write_images
from tests.support.imports import ROOT


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
    assert frame.rows[0] == {
        "id": "blue-circle.png",
        "split": "train",
        "file": str(finished / "photos/blue-circle.png"),
        "width": 72,
        "height": 64,
        "captions": ["A blue circle.", "Something blue"],
        "tags": ["blue", "circle"],
        "hints": [],
    }


def test_pandas_is_optional(finished, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError) as error:
        fne.load_catalog(finished).dataframe()
    assert error.value.message == "pandas is not installed; run `pip install pandas`, or use records()"


def test_captions_without_images_have_no_files(tmp_path):
    (tmp_path / "params.yaml").write_bytes((ROOT / "params.yaml").read_bytes())
    write_images(tmp_path / "data/images.jsonl", [])
    write_captions(
        tmp_path / "data/captions.jsonl", [Captioned("a", "train", ("A dog.",), ("dog",), hints=("animal",))]
    )
    catalog = fne.load_catalog(tmp_path)
    assert catalog.records() == [
        {
            "id": "a",
            "split": "train",
            "file": None,
            "width": None,
            "height": None,
            "captions": ["A dog."],
            "tags": ["dog"],
            "hints": ["animal"],
        }
    ]
    with pytest.raises(InputError) as error:
        catalog.file("a")
    assert error.value.message == "'a' has no file: the catalog was made with catalog.images=none"


def test_a_wrong_use_is_refused(finished):
    catalog = fne.load_catalog(finished)
    with pytest.raises(InputError) as error:
        catalog.ids("dev")
    assert error.value.message == "split: 'dev' is not one of 'train', 'val', 'test', 'gallery'"
    with pytest.raises(InputError) as error:
        catalog.open("nothing.png")
    assert error.value.message == "'nothing.png' is not an image of the catalog; ids() lists them"


def test_an_image_that_is_gone_is_named(finished, tmp_path):
    project = shutil.copytree(finished, tmp_path / "copy")
    (project / "photos/red-circle.png").unlink()
    with pytest.raises(InputError, match="red-circle.png: "):
        fne.load_catalog(project).open("red-circle.png")
