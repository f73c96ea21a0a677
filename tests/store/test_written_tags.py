import random

import pytest

from fne.core.errors import InputError
from fne.store.written_tags import Tagged, read_tagged, write_tagged

IMAGES = [
    Tagged("b.jpg", ["sea", "dog\u2028"], ["dog\u2028"], [0.25, 1.0]),
    Tagged("a.jpg", None, None, None),
]
LINEAGE = {"tagger": {"digest": "ab", "settings": {}}}


def write(path):
    write_tagged(path, IMAGES, ["sea", "dog\u2028"], {"top_k": 1}, LINEAGE)


def test_tags_come_back_sorted_by_image_with_where_they_are_from(tmp_path):
    write(tmp_path / "t")
    found = read_tagged(tmp_path / "t")
    assert found.images == IMAGES[::-1]
    assert found.concepts == ["sea", "dog\u2028"]
    artifact = found.artifact
    assert (artifact.name, artifact.settings, artifact.lineage) == ("tags", {"top_k": 1}, LINEAGE)


def test_every_damage_is_detected(tmp_path):
    path = tmp_path / "t"
    write(path)
    content = path.read_bytes()
    generator = random.Random(0)
    damaged = [content[:cut] for cut in (0, 1, 40, len(content) - 1)]
    for _ in range(40):
        place = generator.randrange(len(content))
        damaged.append(content[:place] + bytes([content[place] ^ 8]) + content[place + 1 :])
    for each in damaged:
        path.write_bytes(each)
        with pytest.raises(InputError, match=r"t: (not a file of tags \(|needs a version of fne)"):
            read_tagged(path)
