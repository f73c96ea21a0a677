import json
import random
from pathlib import Path

import pytest

from fne.core.errors import InputError
from fne.core.settings import parse_section
from fne.store.artifact import Artifact
from fne.store.checksums import seal_text
from fne.text.vocabulary import Tokenize, Vocabulary, choose_words, read_vocabulary, write_vocabulary


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
    with pytest.raises(
        InputError, match=r"v.json: damaged \(.*\); run `fne verify .*v.json` to see how to repair it"
    ):
        read_vocabulary(tmp_path / "v.json")


@pytest.mark.parametrize("seed", range(20))
def test_a_flipped_bit_anywhere_is_detected(tmp_path, seed):
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


def vocabulary(**recorded) -> Vocabulary:
    return Vocabulary(Artifact(Path("v.json"), "vocabulary", "", recorded), ["<unk>", "a", "dog"])


@pytest.mark.parametrize(
    ("recorded", "numbers"),
    [
        ({}, [1, 0, 2, 1]),
        ({"longest": 3}, [1, 0, 2]),
        ({"without_vector": "mean"}, [1, 0, 2, 1]),
        ({"without_vector": "drop"}, [1, 2, 1]),
        ({"without_vector": "drop", "longest": 2}, [1, 2]),
    ],
)
def test_captions_are_encoded_as_the_settings_say(recorded, numbers):
    assert vocabulary(**recorded).encode(["a", "zebra", "dog", "a"]) == numbers


@pytest.mark.parametrize("words", [[], ["zebra", "quagga"]])
def test_a_caption_without_a_word_left_is_one_unknown_word(words):
    assert vocabulary(without_vector="drop").encode(words) == [0]


SECTION = {
    "lowercase": True,
    "min_count": 1,
    "end_of_sentence": False,
    "vocabulary": ["train"],
    "cut": "nltk",
    "longest": 0,
    "vectors": "weights/random_words.yaml",
    "without_vector": "random",
}


def test_the_rule_for_words_without_a_vector_is_recorded_where_there_are_vectors():
    section = Tokenize(**SECTION | {"without_vector": "drop"})
    assert "without_vector" not in section.recorded(pretrained=False)
    assert section.recorded(pretrained=True)["without_vector"] == "drop"
    assert not {"vectors"} & section.recorded(pretrained=True).keys()


def test_an_end_that_would_be_dropped_is_refused():
    _, faults = parse_section(
        {"tokenize": SECTION | {"end_of_sentence": True, "without_vector": "drop"}}, "tokenize", Tokenize
    )
    assert faults == [
        "end_of_sentence is true, but without_vector 'drop' drops the end, which has no vector; "
        "use without_vector=random"
    ]
