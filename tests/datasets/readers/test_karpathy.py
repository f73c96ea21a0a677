import json

import pytest

from fne.datasets.readers.karpathy import read_karpathy
from tests.support.datasets import entry, write_karpathy
from tests.support.refusals import refused


def read(path):
    return read_karpathy(path.parent, [path]).records


def test_names_splits_and_raw_captions_are_unchanged(tmp_path):
    path = write_karpathy(
        tmp_path,
        entry("a.jpg", "train", "A dog .", None),
        entry("b.jpg", "restval", 7) | {"tags": ["sea", " dog ", "sea", ""]},
        entry("c.jpg") | {"filepath": "val2014"},
        {"filename": "d.jpg", "split": "train"},
        images=False,
    )
    assert [(each.id, each.split, each.captions, each.tags, each.place) for each in read(path)] == [
        ("a.jpg", "train", ("A dog .", None), (), "image 0"),
        ("b.jpg", "restval", (7,), ("dog", "sea"), "image 1"),
        ("val2014/c.jpg", "train", ("a dog",), (), "image 2"),
        ("d.jpg", "train", (), (), "image 3"),
    ]


@pytest.mark.parametrize(
    ("images", "fault"),
    [
        ([{"split": "train"}, {"filename": 7, "split": None}, {"filename": "c", "split": "val", "sentences": [{}]}],
         "images.0 has no 'filename'; images.1.filename: input should be a valid string, got 7; "
         "images.1.split: input should be a valid string, got None; images.2.sentences.0 has no 'raw'; fix"),
        ([None, {"filename": "a", "split": "val", "sentences": ["a dog"]}],
         "images.0: input should be a JSON object, got None; "
         "images.1.sentences.0: input should be a JSON object, got 'a dog'; fix the file"),
        ([{"filename": "a.jpg"}] * 8,
         "".join(f"images.{number} has no 'split'; " for number in range(5)) + "and 3 more; fix the file"),
    ],
)  # fmt: skip
def test_all_faults_of_the_file_are_in_one_message_and_many_are_counted(tmp_path, images, fault):
    path = tmp_path / "dataset.json"
    path.write_text(json.dumps({"images": images}))
    with refused(f"{path}: {fault}"):
        read(path)


@pytest.mark.parametrize("content", ["[]", "7", "null", '{"images": {}}', "{}"])
def test_other_json_is_refused(tmp_path, content):
    path = tmp_path / "dataset.json"
    path.write_text(content)
    with refused(f"{path}: ", "fix the file"):
        read(path)
