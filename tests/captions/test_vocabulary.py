import json

import pytest

from fne.captions.vocabulary import choose_words, read_vocabulary, write_vocabulary
from fne.core.errors import InputError


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
    with pytest.raises(InputError, match=r"v.json: damaged \(.*\); remove it and run `dvc repro tokenize`"):
        read_vocabulary(tmp_path / "v.json")


def test_a_newer_format_is_refused(tmp_path):
    newer = {"format": "fne-vocabulary", "version": 2, "words": [], "settings": {}}
    (tmp_path / "v.json").write_text(json.dumps(newer))
    with pytest.raises(InputError, match="has format fne-vocabulary 2; this version reads fne-vocabulary 1"):
        read_vocabulary(tmp_path / "v.json")
