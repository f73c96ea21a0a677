import json
import random

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
@pytest.mark.parametrize("content", [b"{", b"{}", b"[]", b"1", b"\xff", b""])
def test_a_damaged_file_says_what_to_run(tmp_path, read, content):
    (tmp_path / "c").write_bytes(content)
    with pytest.raises(
        InputError, match=r"c: not a catalog file \(.*\); run `fne verify .*/c`, which says what mends it"
    ):
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
def test_every_flipped_bit_and_every_cut_is_noticed(tmp_path, write, read, records):
    path = tmp_path / "c"
    write(path, records)
    for damaged in damages(path.read_bytes()):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match=r"c: (not a catalog file \(|needs a version of fne)"):
            read(path)


def test_a_file_of_the_first_version_has_no_header_and_is_read(tmp_path):
    write_captions(tmp_path / "c", CAPTIONED)
    (tmp_path / "c").write_text("\n".join((tmp_path / "c").read_text().split("\n")[1:]))
    assert read_captions(tmp_path / "c")[0] == CAPTIONED[::-1]


def test_every_line_is_json_and_the_first_says_what_the_file_is(tmp_path):
    write_images(tmp_path / "i", [])
    header = json.loads((tmp_path / "i").read_text())
    assert {name: header[name] for name in ("format", "version")} == {"format": "fne-images", "version": 2}
    assert read_images(tmp_path / "i")[0] == []


def test_the_other_catalog_file_is_refused(tmp_path):
    write_images(tmp_path / "i", IMAGES)
    with pytest.raises(
        InputError, match=r"i: needs a version of fne that reads fne-images 2; this one reads fne-captions"
    ):
        read_captions(tmp_path / "i")
