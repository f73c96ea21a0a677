import json
import random

import pytest

from fne.captions.vocabulary import choose_words, read_vocabulary, write_vocabulary
from fne.core.errors import InputError
from fne.store.formats import seal_text


def test_rare_words_are_left_out():
    assert choose_words([["a", "a", "b"], ["b", "c"]], min_count=2) == ["<unk>", "a", "b"]


def test_an_unknown_word_is_number_zero(tmp_path):
    write_vocabulary(tmp_path / "v.json", ["<unk>", "a", "é"], {"min_count": 1})
    vocabulary = read_vocabulary(tmp_path / "v.json")
    assert vocabulary.encode(["é", "zebra", "a"]) == [2, 0, 1]
    assert vocabulary.artifact.settings == {"min_count": 1}


@pytest.mark.parametrize("content", ["{", "[]", "{}"])
def test_a_damaged_file_is_refused(tmp_path, content):
    (tmp_path / "v.json").write_text(content)
    with pytest.raises(InputError, match=r"v.json: damaged \(.*\); run `fne verify .*v.json`, which"):
        read_vocabulary(tmp_path / "v.json")


@pytest.mark.parametrize("seed", range(20))
def test_a_flipped_bit_anywhere_is_noticed(tmp_path, seed):
    path = tmp_path / "v.json"
    write_vocabulary(path, ["<unk>", "a", "é"], {"min_count": 1})
    content = bytearray(path.read_bytes())
    chance = random.Random(seed)
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"v.json: "):
        read_vocabulary(path)


def test_a_newer_format_is_refused(tmp_path):
    newer = {"format": "fne-vocabulary", "version": 3, "words": [], "settings": {}}
    (tmp_path / "v.json").write_text(seal_text(json.dumps(newer)))
    with pytest.raises(InputError) as caught:
        read_vocabulary(tmp_path / "v.json")
    assert caught.value.message == (
        f"{tmp_path}/v.json: needs a version of fne that reads fne-vocabulary 3; "
        "this one reads fne-vocabulary up to 2"
    )


def test_a_file_of_the_first_version_is_read(tmp_path):
    older = {"format": "fne-vocabulary", "version": 1, "words": ["<unk>", "a"], "settings": {}}
    (tmp_path / "v.json").write_text(json.dumps(older))
    assert read_vocabulary(tmp_path / "v.json").words == ["<unk>", "a"]
