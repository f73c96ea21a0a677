import pytest

from fne.core.errors import InputError
from fne.store.catalog import (
    Captioned,
    Image,
    in_split,
    read_captions,
    read_images,
    split_artifact,
    write_captions,
    write_images,
)

IMAGES = [Image("b.jpg", "images/b.jpg", "00", 3, 4, 5), Image("a.jpg", "images/a.jpg", "11", 3, 4, 5)]
CAPTIONED = [
    Captioned("b.jpg", "train", ("A dog.", "Line\u2028separator"), ("dog",)),
    Captioned("a.jpg", "gallery", (), ()),
]


def test_both_files_come_back_sorted_by_id(tmp_path):
    write_images(tmp_path / "i", IMAGES)
    write_captions(tmp_path / "c", CAPTIONED)
    assert read_images(tmp_path / "i")[0] == IMAGES[::-1]
    assert read_captions(tmp_path / "c")[0] == CAPTIONED[::-1]


def test_every_caption_has_an_id_of_its_own():
    assert CAPTIONED[0].caption_ids == ["b.jpg#0", "b.jpg#1"]


def test_a_corrected_caption_leaves_the_split_as_it_is(tmp_path):
    corrected = [Captioned("b.jpg", "train", ("A cat.",), ())]
    assert in_split(CAPTIONED, "train") == CAPTIONED[:1]
    assert split_artifact(tmp_path, corrected, "train") == split_artifact(tmp_path, CAPTIONED, "train")


@pytest.mark.parametrize("read", [read_captions, read_images])
@pytest.mark.parametrize("content", [b"{", b"{}", b"[]", b"1", b"\xff"])
def test_a_damaged_file_says_what_to_run(tmp_path, read, content):
    (tmp_path / "c").write_bytes(content)
    with pytest.raises(InputError, match=r"c: not a catalog file \(.*\); run `dvc repro catalog`"):
        read(tmp_path / "c")
