import pytest

from fne.core.errors import InputError
from fne.datasets.readers import PATTERNS, READERS, read_dataset
from tests.datasets.samples import entry, write_images, write_karpathy

TABLE = "image,caption\na.jpg,A dog\n"


def fault(root, format_name="auto", annotations="auto"):
    with pytest.raises(InputError) as caught:
        read_dataset(root, format_name, annotations)
    return caught.value.message


def test_every_format_but_the_folder_has_file_names_to_look_for():
    assert PATTERNS.keys() | {"folder"} == READERS.keys()


def test_the_names_of_files_tell_the_format(tmp_path):
    write_karpathy(tmp_path / "karpathy", entry("k.jpg"))
    (tmp_path / "table").mkdir()
    (tmp_path / "table/mine.csv").write_text("image,caption\nt.jpg,A dog\n")
    (tmp_path / "flickr/Flickr8k_text").mkdir(parents=True)
    for name in ("Flickr8k.token.txt", "Flickr8k.lemma.token.txt"):
        (tmp_path / "flickr/Flickr8k_text" / name).write_text("f.jpg#0\tA dog\n")
    (tmp_path / "flickr/Flickr8k_text/train.txt").write_text("f.jpg\n")
    (tmp_path / "coco/annotations").mkdir(parents=True)
    (tmp_path / "coco/annotations/captions_val2017.json").write_text(
        '{"images": [{"id": 1, "file_name": "c.jpg"}], "annotations": []}'
    )
    write_images(tmp_path / "folder", "p.jpg")
    found = {name: read_dataset(tmp_path / name, "auto", "auto").records[0].id for name in READERS}
    assert found == {
        "karpathy": "k.jpg",
        "flickr": "f.jpg",
        "coco": "val2017/c.jpg",
        "table": "t.jpg",
        "folder": "p.jpg",
    }


@pytest.mark.parametrize("name", ["MINE.CSV", "Captions.TXT", "c.JsonL"])
def test_upper_and_lower_case_of_the_names_do_not_matter(tmp_path, name):
    text = '{"image": "a.jpg", "caption": "A dog"}' if name == "c.JsonL" else TABLE
    (tmp_path / name).write_text(text)
    write_images(tmp_path, "a.jpg")
    for annotations in ("auto", name):
        (record,) = read_dataset(tmp_path, "auto", annotations).records
        assert record.captions == ("A dog",)


def test_nothing_that_fits_is_an_error_that_says_what_was_looked_for_and_found(tmp_path):
    (tmp_path / "notes.txt").touch()
    assert fault(tmp_path) == (
        f"{tmp_path}: no data set found; looked for karpathy: dataset*.json; "
        "flickr: *.token.txt, *.token, Flickr8k_text/*.token.txt; "
        "coco: captions_*.json, annotations/captions_*.json; table: *.csv, *.jsonl, captions.txt; "
        "image files; "
        "the folder holds notes.txt; set catalog.root, or catalog.format and catalog.annotations"
    )


def test_a_named_format_without_its_file_is_an_error(tmp_path):
    write_images(tmp_path, "a.jpg")
    assert fault(tmp_path, "karpathy").startswith(
        f"{tmp_path}: no data set found; looked for karpathy: dataset*.json; the folder holds a.jpg; "
    )


def test_two_formats_that_fit_are_an_error_until_one_is_named(tmp_path):
    write_karpathy(tmp_path, entry("k.jpg"))
    (tmp_path / "mine.csv").write_text(TABLE)
    assert fault(tmp_path) == (
        f"{tmp_path}: more than one format fits (karpathy: dataset.json; table: mine.csv); "
        "set catalog.format to one of them"
    )
    assert read_dataset(tmp_path, "table", "auto").records[0].id == "a.jpg"
    assert read_dataset(tmp_path, "auto", "mine.csv").records[0].id == "a.jpg"
    assert read_dataset(tmp_path, "folder", "auto").records[0].id == "images/k.jpg"


def test_two_files_of_one_format_are_an_error_until_one_is_named(tmp_path):
    for name in ("one.csv", "two.csv"):
        (tmp_path / name).write_text(TABLE)
    assert fault(tmp_path) == (
        f"{tmp_path}: more than one annotation file (one.csv, two.csv); "
        "set catalog.annotations to one of them"
    )
    assert len(read_dataset(tmp_path, "auto", "two.csv").records) == 1


def test_a_pattern_chooses_the_files_of_one_year(tmp_path):
    for year in (2014, 2017):
        (tmp_path / f"captions_val{year}.json").write_text(
            '{"images": [{"id": 1, "file_name": "c.jpg"}], "annotations": []}'
        )
    records = read_dataset(tmp_path, "auto", "captions_*2017.json").records
    assert [record.id for record in records] == ["val2017/c.jpg"]


def test_annotations_that_are_missing_or_elsewhere_or_of_no_known_name_are_errors(tmp_path):
    (tmp_path / "mine.txt").write_text(TABLE)
    assert fault(tmp_path, annotations="no.csv") == (
        f"catalog.annotations: no file 'no.csv' below {tmp_path}; set it to one, or to auto"
    )
    assert fault(tmp_path, annotations="../x.csv").startswith(
        "catalog.annotations: '../x.csv' points outside"
    )
    assert fault(tmp_path, annotations="mine.txt") == (
        f"{tmp_path}: the name 'mine.txt' does not tell the format; "
        "set catalog.format to one of karpathy, flickr, coco, table"
    )
    assert read_dataset(tmp_path, "table", "mine.txt").records[0].id == "a.jpg"


def test_a_data_set_without_images_is_an_error(tmp_path):
    path = write_karpathy(tmp_path)
    assert fault(tmp_path) == f"{path}: no images; nothing to catalog"
