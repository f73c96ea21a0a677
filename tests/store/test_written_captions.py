import random

import pytest

from fne.core.errors import InputError
from fne.store.written_captions import Sentence, Written, read_written, write_written

LINEAGE = {"captioner": {"digest": "abc", "settings": {}}}
WRITTEN = [
    Written(
        "b\u2028.jpg", (Sentence("a dog", -1.5, -1.5, True), Sentence("", -2.0, -1.0, False)), {"dog": 0.9}
    ),
    Written('a".jpg', (Sentence("</script>", -0.5, -0.5, True),), {}),
]


def write(path):
    write_written(path, WRITTEN, {"beam": 2}, LINEAGE)
    return path


def test_captions_come_back_with_all_that_made_them(tmp_path):
    found, artifact = read_written(write(tmp_path / "captions.jsonl"))
    assert list(found.values()) == WRITTEN[::-1]  # sorted by id
    assert found["b\u2028.jpg"].caption == "a dog"
    assert (artifact.name, artifact.settings, artifact.lineage) == ("written_captions", {"beam": 2}, LINEAGE)


def test_one_image_can_be_read_alone(tmp_path):
    found, _ = read_written(write(tmp_path / "captions.jsonl"), ['a".jpg', "missing"])
    assert list(found.values()) == [WRITTEN[1]]


@pytest.mark.parametrize("seed", range(20))
def test_a_flipped_bit_anywhere_is_noticed(tmp_path, seed):
    path = write(tmp_path / "captions.jsonl")
    content = bytearray(path.read_bytes())
    chance = random.Random(seed)
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(7)
    path.write_bytes(content)
    with pytest.raises(InputError, match="captions.jsonl: not a file of written captions"):
        read_written(path)


def test_other_files_are_refused(tmp_path):
    (tmp_path / "x").write_text('{"format": "other"}\n')
    with pytest.raises(InputError, match="its seal is missing"):
        read_written(tmp_path / "x")
