import json
import random
from pathlib import Path

import pytest

from fne.core.settings import parse_section
from fne.store.artifact import Artifact
from fne.store.checksums import seal_text
from fne.text.vocabulary import Tokenize, Vocabulary, choose_words, read_vocabulary, write_vocabulary
from tests.support.refusals import refused


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
    with refused("v.json: damaged (", "); run `fne verify ", "v.json` to see how to repair it"):
        read_vocabulary(tmp_path / "v.json")


def test_a_flipped_bit_anywhere_is_detected(tmp_path):
    path, chance = tmp_path / "v.json", random.Random(0)
    write_vocabulary(path, ["<unk>", "a", "é"], {"min_count": 1})
    content = path.read_bytes()
    for _ in range(20):
        changed = bytearray(content)
        changed[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        path.write_bytes(changed)
        with refused("v.json: "):
            read_vocabulary(path)


def test_a_newer_format_is_refused(tmp_path):
    newer = {"format": "fne-vocabulary", "version": 3, "words": [], "settings": {}}
    (tmp_path / "v.json").write_text(seal_text(json.dumps(newer)))
    with refused("v.json: needs a version of fne that reads fne-vocabulary 3; ", " up to 2"):
        read_vocabulary(tmp_path / "v.json")


SAID = ["a", "zebra", "dog", "a"]


def vocabulary(**recorded) -> Vocabulary:
    return Vocabulary(Artifact(Path("v.json"), "vocabulary", "", recorded), ["<unk>", "a", "dog"])


@pytest.mark.parametrize(
    ("recorded", "words", "numbers"),
    [
        ({}, SAID, [1, 0, 2, 1]),
        ({"longest": 3}, SAID, [1, 0, 2]),
        ({"without_vector": "mean"}, SAID, [1, 0, 2, 1]),
        ({"without_vector": "drop"}, SAID, [1, 2, 1]),
        ({"without_vector": "drop", "longest": 2}, SAID, [1, 2]),
        ({"without_vector": "drop"}, [], [0]),
        ({"without_vector": "drop"}, ["zebra", "quagga"], [0]),
    ],
)
def test_captions_are_encoded_as_the_settings_say(recorded, words, numbers):
    assert vocabulary(**recorded).encode(words) == numbers


def test_the_rule_for_words_without_a_vector_is_recorded_where_there_are_vectors():
    section = Tokenize(without_vector="drop")
    assert "without_vector" not in section.recorded(pretrained=False)
    assert section.recorded(pretrained=True)["without_vector"] == "drop"
    assert not {"vectors"} & section.recorded(pretrained=True).keys()


def test_an_end_that_would_be_dropped_is_refused():
    section = {"end_of_sentence": True, "without_vector": "drop"}
    (fault,) = parse_section({"tokenize": section}, "tokenize", Tokenize)[1]
    assert fault.startswith("end_of_sentence is true, but without_vector 'drop' drops the end")
    assert fault.endswith("use without_vector=random")
