import json
import random
from pathlib import Path

import pytest

from fne.core.errors import InputError
from fne.datasets.readers import PATTERNS
from fne.store.catalog import (
    ENDINGS,
    SUBFOLDERS,
    Captioned,
    Image,
    captioned_in,
    duplicate_photos,
    image_root,
    in_split,
    read_captions,
    read_images,
    refuse_duplicate_photos,
    require_images,
    split_artifact,
    write_captions,
    write_images,
)
from fne.store.checksums import seal_text
from tests.support.refusals import refused

IMAGES = [Image("b.jpg", "images/b.jpg", "00", 3, 4, 5), Image("a.jpg", "images/a.jpg", "11", 3, 4, 5)]
CAPTIONED = [
    Captioned("b.jpg", "train", ("A dog.", "Line\u2028separator"), ("dog",)),
    Captioned("a.jpg", "gallery", (), (), user_tags=("holiday",)),
]


def test_both_files_are_read_back_sorted_by_id_and_every_caption_has_its_own(tmp_path):
    write_images(tmp_path / "i", IMAGES)
    write_captions(tmp_path / "c", CAPTIONED)
    assert read_images(tmp_path / "i")[0] == IMAGES[::-1]
    assert read_captions(tmp_path / "c")[0] == CAPTIONED[::-1]
    assert CAPTIONED[0].caption_ids == ["b.jpg#0", "b.jpg#1"]


def test_images_with_tags_only_are_in_their_split_but_not_among_the_captioned():
    tagged = Captioned("c.jpg", "train", (), ("dog",))
    assert in_split([*CAPTIONED, tagged], "train") == [CAPTIONED[0], tagged]
    assert captioned_in([*CAPTIONED, tagged], "train") == [CAPTIONED[0]]


def test_a_file_of_version_3_is_refused_because_it_has_no_user_tags(tmp_path):
    line = '{"id": "a.jpg", "split": "train", "captions": ["A dog."], "tags": [], "position": 4}\n'
    (tmp_path / "c").write_text(seal_text('{"format": "fne-captions", "version": 3}\n' + line))
    with pytest.raises(InputError, match=r"c: not a catalog file \('user_tags'\); "):
        read_captions(tmp_path / "c")


def test_a_corrected_caption_does_not_change_the_split(tmp_path):
    corrected = [Captioned("b.jpg", "train", ("A cat.",), ())]
    assert in_split(CAPTIONED, "train") == CAPTIONED[:1]
    assert split_artifact(tmp_path, corrected, "train") == split_artifact(tmp_path, CAPTIONED, "train")


@pytest.mark.parametrize("read", [read_captions, read_images])
@pytest.mark.parametrize("content", [b"{", b"{}", b"[]", b"1", b"\xff", b""])
def test_a_damaged_file_says_what_to_run(tmp_path, read, content):
    (tmp_path / "c").write_bytes(content)
    with refused("c: not a catalog file (", "); run `fne verify ", "/c` to see how to repair it"):
        read(tmp_path / "c")


def damages(content: bytes) -> list[bytes]:
    """All cuts at the end of a line, some others, and some flipped bits."""
    chance = random.Random(0)
    flipped = []
    for _ in range(60):
        changed = bytearray(content)
        changed[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        flipped.append(bytes(changed))
    cuts = [place + 1 for place, byte in enumerate(content[:-1]) if byte == 10]
    return flipped + [content[:cut] for cut in [*cuts, 0, 5, len(content) - 1]]


@pytest.mark.parametrize(
    ("write", "read", "records"),
    [(write_images, read_images, IMAGES), (write_captions, read_captions, CAPTIONED)],
)
def test_every_flipped_bit_and_every_truncation_is_detected(tmp_path, write, read, records):
    path = tmp_path / "c"
    write(path, records)
    for damaged in damages(path.read_bytes()):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match=r"c: (not a catalog file \(|needs a version of fne)"):
            read(path)


def test_every_line_is_json_and_the_first_says_what_the_file_is(tmp_path):
    write_images(tmp_path / "i", [])
    header = json.loads((tmp_path / "i").read_text())
    assert {name: header[name] for name in ("format", "version")} == {"format": "fne-images", "version": 2}
    assert read_images(tmp_path / "i")[0] == []


def test_the_other_catalog_file_is_refused(tmp_path):
    write_images(tmp_path / "i", IMAGES)
    with refused("i: needs a version of fne that reads fne-images 2; this one reads fne-captions"):
        read_captions(tmp_path / "i")


def test_a_folder_is_its_own_root_and_a_file_an_annotation_file_whatever_its_name(tmp_path):
    (tmp_path / "v1.json").mkdir()
    assert image_root(tmp_path / "v1.json") == tmp_path / "v1.json"
    (tmp_path / "captions").touch()
    assert image_root(str(tmp_path / "captions")) == tmp_path


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("pattern", [each for patterns in PATTERNS.values() for each in patterns])
def test_every_annotation_file_that_a_reader_looks_for_leads_to_its_data_set(tmp_path, pattern, there):
    """Also on the machine of a colleague who searches and does not have the images."""
    file = tmp_path / "set" / pattern.replace("*", "x")
    if there:
        file.parent.mkdir(parents=True)
        file.touch()
    assert image_root(file) == tmp_path / "set"


def test_every_ending_and_subfolder_is_one_that_a_reader_looks_for():
    patterns = [each.lower() for several in PATTERNS.values() for each in several]
    assert all(any(each.endswith(ending) for each in patterns) for ending in ENDINGS)
    assert all(any(each.startswith(f"{folder}/") for each in patterns) for folder in SUBFOLDERS)


EIGHT, THIRTY = "1000268201_693b08cb0e.jpg", "1000268201.jpg"


@pytest.mark.parametrize(
    ("first", "other"),
    [
        (EIGHT, THIRTY),
        (EIGHT, f"flickr30k-images/{THIRTY}"),
        (f"8k/{EIGHT}", f"8k_again/{EIGHT}"),
        ("1000268201_693b08cb0e_b.JPG", "1000268201.JPEG"),
    ],
)
def test_a_photograph_in_two_splits_is_found_by_its_number(first, other):
    assert duplicate_photos({first: "train", other: "test"}) == [tuple(sorted([first, other]))]


@pytest.mark.parametrize(
    "splits",
    [
        {EIGHT: "train", THIRTY: "train"},  # the same split
        {EIGHT: "gallery", THIRTY: "test"},  # never trained on or scored
        {EIGHT: "train", "1000268202.jpg": "test"},  # another photograph
        {"a/000123.jpg": "train", "b/000123.jpg": "test"},  # numbers of some other data set
        {"val2014/COCO_val2014_000000391895.jpg": "train", "391895.jpg": "test"},
        {},
    ],
)
def test_other_names_are_not_taken_for_the_same_photograph(splits):
    assert duplicate_photos(splits) == []


def test_the_error_names_the_first_pair_its_splits_and_the_number_of_pairs():
    splits = {EIGHT: "train", THIRTY: "test", "22222_0123456789.jpg": "val", "22222.jpg": "test"}
    with refused(
        f"data/captions.jsonl: '{THIRTY}' (test) and '{EIGHT}' (train) are the same photograph of Flickr, "
        "one pair of 2;",
        "put both in the same split, or leave one out",
    ):
        refuse_duplicate_photos(Path("data/captions.jsonl"), splits)
    refuse_duplicate_photos(Path("data/captions.jsonl"), {EIGHT: "test", THIRTY: "test"})


RAW_IMAGE = {"id": "a", "path": "a", "sha256": "0", "bytes": 1, "width": 2, "height": 3}
RAW_CAPTIONED = {"id": "a", "split": "train", "captions": ["x"], "tags": [], "position": 0, "user_tags": []}


@pytest.mark.parametrize(
    ("read", "raw", "change"),
    [
        *((read_images, RAW_IMAGE, each) for each in (
            {"id": None}, {"path": ["a"]}, {"path": "../a"}, {"path": "/a"}, {"path": "a\0"}, {"width": "2"},
            {"id": "\ud800"},
        )),
        *((read_captions, RAW_CAPTIONED, each) for each in (
            {"id": 5}, {"split": []}, {"captions": "x"}, {"captions": [5]}, {"tags": {}}, {"position": "1"},
            {"user_tags": [None]},
        )),
    ],
)  # fmt: skip
def test_a_record_that_is_none_is_one_line(tmp_path, read, raw, change):
    header = {"format": "fne-images" if read is read_images else "fne-captions", "version": 2}
    path = tmp_path / "file"

    def read_sealed(record):
        path.write_text(seal_text(f"{json.dumps(header)}\n{json.dumps(record)}\n"))
        return read(path)

    read_sealed(raw)
    with refused("file: not a catalog file ") as caught:
        read_sealed(raw | change)
    assert "\n" not in caught.value.message


def test_too_few_images_are_refused_by_split():
    with refused(
        "1 captioned images in split 'train'; training needs at least 2; see `catalog` in params.yaml"
    ):
        require_images([Captioned("0.png", "train", ("a",), ())], "train", least=2, purpose="training")
