import json

import pytest

from fne.core.errors import InputError
from fne.datasets.readers.karpathy import read_karpathy
from tests.support.datasets import entry, write_karpathy


def read(path):
    return read_karpathy(path.parent, [path]).records


def test_names_splits_and_raw_captions_are_unchanged(tmp_path):
    path = write_karpathy(tmp_path, entry("a.jpg", "train", "A dog .", None), entry("b.jpg", "restval", 7))
    first, second = read(path)
    assert (first.id, first.split, first.captions, first.tags) == ("a.jpg", "train", ("A dog .", None), ())
    assert (second.id, second.split, second.captions, second.place) == ("b.jpg", "restval", (7,), "image 1")


def test_the_id_contains_the_filepath_if_there_is_one(tmp_path):
    path = write_karpathy(tmp_path, entry("a.jpg") | {"filepath": "val2014"}, images=False)
    assert [record.id for record in read(path)] == ["val2014/a.jpg"]


def test_an_image_without_sentences_has_no_captions(tmp_path):
    path = write_karpathy(tmp_path, {"filename": "a.jpg", "split": "train"})
    assert read(path)[0].captions == ()


def test_all_faults_of_the_file_are_in_one_message(tmp_path):
    path = tmp_path / "dataset.json"
    faulty = [
        {"split": "train"},
        {"filename": 7, "split": None},
        {"filename": "c", "split": "val", "sentences": [{}]},
    ]
    path.write_text(json.dumps({"images": faulty}))
    with pytest.raises(InputError) as caught:
        read(path)
    assert caught.value.message == (
        f"{path}: images.0 has no 'filename'; images.1.filename: input should be a valid string, got 7; "
        "images.1.split: input should be a valid string, got None; "
        "images.2.sentences.0 has no 'raw'; fix the file"
    )


def test_many_faults_are_truncated_and_counted(tmp_path):
    path = tmp_path / "dataset.json"
    path.write_text(json.dumps({"images": [{"filename": "a.jpg"}] * 8}))
    with pytest.raises(InputError, match=r"images\.4 has no 'split'; and 3 more; fix the file$"):
        read(path)


def test_a_value_that_is_not_an_object_gives_a_plain_message(tmp_path):
    path = tmp_path / "dataset.json"
    path.write_text('{"images": [null, {"filename": "a", "split": "val", "sentences": ["a dog"]}]}')
    with pytest.raises(InputError) as caught:
        read(path)
    assert caught.value.message == (
        f"{path}: images.0: input should be a JSON object, got None; "
        "images.1.sentences.0: input should be a JSON object, got 'a dog'; fix the file"
    )


@pytest.mark.parametrize("content", ["[]", "7", "null", '{"images": {}}', "{}"])
def test_other_json_is_refused(tmp_path, content):
    path = tmp_path / "dataset.json"
    path.write_text(content)
    with pytest.raises(InputError, match=r"fix the file$"):
        read(path)


def test_tags_are_read_where_there_are_any(tmp_path):
    path = write_karpathy(tmp_path, entry("a.jpg") | {"tags": ["sea", " dog ", "sea", ""]}, entry("b.jpg"))
    assert [record.tags for record in read(path)] == [("dog", "sea"), ()]
