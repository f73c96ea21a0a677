import json
import random

import pytest

from fne.core.errors import InputError
from fne.describing.annotations import (
    Tagged,
    Written,
    WrittenSentence,
    read_tagged,
    read_written,
    write_coco_results,
    write_tagged,
    write_written,
)
from fne.describing.concepts import Concepts

TAGGED = [
    Tagged("b.jpg", ["sea", "dog\u2028"], ["dog\u2028"], [0.25, 1.0]),
    Tagged("a.jpg", None, None, None),
]
WRITTEN = [
    Written(
        "b\u2028.jpg",
        (WrittenSentence("a dog", -1.5, -1.5, True), WrittenSentence("", -2.0, -1.0, False)),
        {"dog": 0.9},
    ),
    Written('a".jpg', (WrittenSentence("</script>", -0.5, -0.5, True),), {}),
]
CONCEPTS = Concepts(["sea", "dog\u2028"], [2, 1], 3, 1.0, [])
TAGGER = {"tagger": {"digest": "ab", "settings": {}}}
CAPTIONER = {"captioner": {"digest": "abc", "settings": {}}}


def write_tags(path):
    write_tagged(path, TAGGED, CONCEPTS, {"top_k": 1}, TAGGER)
    return path


def write_captions(path):
    write_written(path, WRITTEN, {"beam": 2}, CAPTIONER)
    return path


def test_tags_are_read_back_sorted_by_image_with_their_origin(tmp_path):
    found = read_tagged(write_tags(tmp_path / "t"))
    assert found.images == TAGGED[::-1]
    assert found.concepts == CONCEPTS
    artifact = found.artifact
    assert (artifact.name, artifact.settings, artifact.lineage) == ("tags", {"top_k": 1}, TAGGER)


def test_captions_are_read_back_sorted_by_image_with_their_origin(tmp_path):
    found, artifact = read_written(write_captions(tmp_path / "c"))
    assert list(found.values()) == WRITTEN[::-1]
    assert found["b\u2028.jpg"].caption == "a dog"
    assert (artifact.name, artifact.settings, artifact.lineage) == (
        "written_captions",
        {"beam": 2},
        CAPTIONER,
    )


def test_one_image_can_be_read_alone(tmp_path):
    found, _ = read_written(write_captions(tmp_path / "c"), ['a".jpg', "missing"])
    assert list(found.values()) == [WRITTEN[1]]


@pytest.mark.parametrize(
    ("write", "read", "what"),
    [(write_tags, read_tagged, "tags"), (write_captions, read_written, "written captions")],
)
def test_every_damage_is_detected(tmp_path, write, read, what):
    path = write(tmp_path / "x")
    content = path.read_bytes()
    generator = random.Random(0)
    damaged = [content[:cut] for cut in (0, 1, 40, len(content) - 1)]
    for _ in range(40):
        place = generator.randrange(len(content))
        flipped = content[place] ^ (1 << generator.randrange(7))
        damaged.append(content[:place] + bytes([flipped]) + content[place + 1 :])
    for each in damaged:
        path.write_bytes(each)
        with pytest.raises(InputError, match=rf"x: (not a file of {what} \(|needs a version of fne)"):
            read(path)


def test_other_files_are_refused(tmp_path):
    (tmp_path / "x").write_text('{"format": "other"}\n')
    with pytest.raises(InputError, match="its seal is missing"):
        read_written(tmp_path / "x")


def sentences(*names):
    return {name: Written(name, WRITTEN[0].sentences, {}) for name in names}


def test_results_for_cocos_server_have_the_numbers_of_images_and_their_best_sentences(tmp_path):
    target = tmp_path / "results"
    names = ("val2014/COCO_val2014_000000000042.jpg", "val2014/000000000007.jpg", "test2014/42.jpg")
    files = write_coco_results(target, sentences(*names), tmp_path)
    assert [file.name for file in files] == [
        "captions_val2014_fne_results.json",
        "captions_test2014_fne_results.json",
    ]
    assert json.loads(files[0].read_text()) == [
        {"image_id": 7, "caption": "a dog"},
        {"image_id": 42, "caption": "a dog"},
    ]
    assert json.loads(files[1].read_text()) == [{"image_id": 42, "caption": "a dog"}]
    with pytest.raises(InputError, match="exists already"):
        write_coco_results(target, sentences(*names), tmp_path)


@pytest.mark.parametrize(
    ("names", "fault"),
    [
        (("dog.jpg",), r"'dog\.jpg' has no number at the end"),
        (("a/COCO_0042.jpg", "a/42.png"), "several images of a have the number 42"),
    ],
)
def test_images_without_numbers_of_coco_are_refused(tmp_path, names, fault):
    with pytest.raises(InputError, match=fault):
        write_coco_results(tmp_path / "results", sentences(*names), tmp_path)
    assert not (tmp_path / "results").exists()
