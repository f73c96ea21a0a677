import tarfile

import pytest

from fne.datasets.readers import PATTERNS, READERS, read_dataset
from fne.datasets.readers.table import AUTOMATIC
from tests.support.datasets import entry, write_images, write_karpathy
from tests.support.refusals import refused

TABLE = "image,caption\na.jpg,A dog\n"
COCO = '{"images": [{"id": 1, "file_name": "c.jpg"}], "annotations": []}'


def test_every_format_but_folder_has_file_patterns():
    assert PATTERNS.keys() | {"folder"} == READERS.keys()


def test_the_format_is_inferred_from_the_names_of_files(tmp_path):
    write_karpathy(tmp_path / "karpathy", entry("k.jpg"))
    for name, text in {
        "table/mine.csv": "image,caption\nt.jpg,A dog\n",
        "flickr/Flickr8k_text/Flickr8k.token.txt": "f.jpg#0\tA dog\n",
        "flickr/Flickr8k_text/Flickr8k.lemma.token.txt": "f.jpg#0\tA dog\n",
        "flickr/Flickr8k_text/train.txt": "f.jpg\n",
        "coco/annotations/captions_val2017.json": COCO,
        "webdataset/none": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    write_images(tmp_path / "folder", "p.jpg")
    with tarfile.open(tmp_path / "webdataset/train-0.tar", "w") as tar:
        tar.add(tmp_path / "folder/p.jpg", "w.jpg")
    found = {name: read_dataset(tmp_path / name, "auto", "auto").records[0].id for name in READERS}
    names = {
        "karpathy": "k.jpg",
        "flickr": "f.jpg",
        "coco": "val2017/c.jpg",
        "table": "t.jpg",
        "folder": "p.jpg",
    }
    assert found == names | {"webdataset": "train-0.tar/w.jpg"}


@pytest.mark.parametrize("name", ["MINE.CSV", "Captions.TXT", "c.JsonL"])
def test_upper_and_lower_case_of_the_names_do_not_matter(tmp_path, name):
    text = '{"image": "a.jpg", "caption": "A dog"}' if name == "c.JsonL" else TABLE
    (tmp_path / name).write_text(text)
    write_images(tmp_path, "a.jpg")
    for annotations in ("auto", name):
        (record,) = read_dataset(tmp_path, "auto", annotations).records
        assert record.captions == ("A dog",)


def test_no_matching_format_is_an_error_with_the_patterns_and_the_content_of_the_folder(tmp_path):
    (tmp_path / "notes.txt").touch()
    start = f"{tmp_path}: no data set found; looked for karpathy: dataset*.json; "
    end = "the folder contains notes.txt; set catalog.root, or catalog.format and catalog.annotations"
    patterns = [pattern for name in PATTERNS for pattern in PATTERNS[name] if name != "karpathy"]
    with refused(start, *patterns, "image files; ", end):
        read_dataset(tmp_path, "auto", "auto")
    with refused(start + end):
        read_dataset(tmp_path, "karpathy", "auto")


def test_two_matching_formats_are_an_error_until_one_is_set(tmp_path):
    write_karpathy(tmp_path, entry("k.jpg"))
    (tmp_path / "mine.csv").write_text(TABLE)
    matches = "more than one format matches (karpathy: dataset.json; table: mine.csv)"
    with refused(f"{tmp_path}: {matches}; set catalog.format to one of them"):
        read_dataset(tmp_path, "auto", "auto")
    assert read_dataset(tmp_path, "table", "auto").records[0].id == "a.jpg"
    assert read_dataset(tmp_path, "auto", "mine.csv").records[0].id == "a.jpg"
    assert read_dataset(tmp_path, "folder", "auto").records[0].id == "images/k.jpg"


def test_two_files_of_one_format_are_an_error_until_one_is_set(tmp_path):
    for name in ("one.csv", "two.csv"):
        (tmp_path / name).write_text(TABLE)
    with refused(
        f"{tmp_path}: more than one annotation file (one.csv, two.csv); set catalog.annotations to one"
    ):
        read_dataset(tmp_path, "auto", "auto")
    assert len(read_dataset(tmp_path, "auto", "two.csv").records) == 1


def test_annotations_that_are_missing_or_outside_the_root_or_of_unknown_format_are_errors(tmp_path):
    (tmp_path / "mine.txt").write_text(TABLE)
    for annotations, parts in {
        "no.csv": (f"catalog.annotations: no file 'no.csv' below {tmp_path}; use an existing file, or auto",),
        "../x.csv": ("catalog.annotations: '../x.csv' points outside",),
        "mine.txt": (
            f"{tmp_path}: the format of 'mine.txt' is not clear",
            "set catalog.format to one of karpathy, ",
        ),
    }.items():
        with refused(*parts):
            read_dataset(tmp_path, "auto", annotations)
    assert read_dataset(tmp_path, "table", "mine.txt").records[0].id == "a.jpg"


def test_a_data_set_without_images_is_an_error(tmp_path):
    with refused(f"{write_karpathy(tmp_path)}: no images; nothing to catalog"):
        read_dataset(tmp_path, "auto", "auto")


def test_a_pattern_selects_the_files_of_one_year(tmp_path):
    for year in (2014, 2017):
        (tmp_path / f"captions_val{year}.json").write_text(COCO)
    records = read_dataset(tmp_path, "auto", "captions_*2017.json").records
    assert [record.id for record in records] == ["val2017/c.jpg"]


def test_names_of_columns_are_for_tables_only(tmp_path):
    write_images(tmp_path, "a.jpg")
    columns = AUTOMATIC.model_copy(update={"caption": "title"})
    with refused(f"{tmp_path}: catalog.columns names columns of a table", "read as folder; set them to auto"):
        read_dataset(tmp_path, "folder", "auto", columns)
