import hashlib
from pathlib import Path

import numpy as np
import pytest

from fne.store.artifact import Artifact
from fne.store.catalog import Captioned
from fne.text.vocabulary import Tokenize, Vocabulary
from fne.text.word_vectors import (
    NO_VECTORS,
    RULES,
    complete,
    coverage,
    describe_vectors,
    known_words,
    load_vectors,
    read_word_vectors,
    write_word_vectors,
)
from tests.support.imports import ROOT
from tests.support.refusals import refused
from tests.support.vectors import glove

WORDS = ["<unk>", "a", "dog", "zebra", "quagga"]


@pytest.fixture
def path(tmp_path) -> Path:
    glove(tmp_path / "glove.txt", {"dog": [3.0, 5.0], "a": [1.0, 1.0], "house": [0.0, 2.0]})
    return tmp_path / "glove.txt"


def vocabulary(words: list[str]) -> Vocabulary:
    return Vocabulary(Artifact(Path("vocabulary.json"), "vocabulary", "f" * 64), words)


def test_every_rule_can_be_chosen():
    assert [Tokenize(without_vector=rule).without_vector for rule in RULES] == list(RULES)
    with pytest.raises(ValueError, match="'drop', 'mean', 'random', 'zero'"):
        Tokenize(without_vector="guess")


@pytest.mark.parametrize(("rule", "missing"), [("zero", [0, 0]), ("mean", [2, 3]), ("drop", [0, 0])])
def test_words_without_a_vector_follow_the_rule(path, rule, missing):
    values, found = complete(WORDS, load_vectors(path, WORDS), rule)
    assert found.tolist() == [False, True, True, False, False]
    assert values.tolist() == [missing, [1, 1], [3, 5], missing, missing]
    assert values.dtype == np.float32


def test_random_vectors_depend_on_the_word_and_the_file_only(path):
    values, _ = complete(WORDS, load_vectors(path, WORDS), "random")
    other = ["<unk>", "okapi", "quagga", "house"]
    again, _ = complete(other, load_vectors(path, other), "random")
    assert values[4].tolist() == again[2].tolist()
    assert values[0].tolist() == again[0].tolist()
    assert len({tuple(row) for row in values.tolist()}) == len(WORDS)


def test_random_vectors_have_the_deviation_of_the_file(path):
    words = ["<unk>", "dog", *(f"w{number}" for number in range(4000))]
    file = load_vectors(path, words)
    values, found = complete(words, file, "random")
    assert file.deviation == pytest.approx(np.std([3, 5, 1, 1, 0, 2]))
    assert values[~found].std() == pytest.approx(file.deviation, rel=0.02)
    assert abs(values[~found].mean()) < 0.05


def test_with_drop_only_words_with_a_vector_are_known(path):
    file = load_vectors(path, WORDS)
    assert known_words(WORDS, file, "drop") == ["<unk>", "a", "dog"]
    assert known_words(WORDS, file, "zero") == WORDS
    assert known_words(WORDS, None, "drop") == WORDS


def test_vectors_are_read_back_with_their_origin(path, tmp_path):
    write_word_vectors(tmp_path / "v.h5", vocabulary(WORDS), load_vectors(path, WORDS), "mean")
    found = read_word_vectors(tmp_path / "v.h5")
    assert found.values.tolist() == [[2, 3], [1, 1], [3, 5], [2, 3], [2, 3]]
    assert found.found.tolist() == [False, True, True, False, False]
    settings = {"kind": "file", "format": "GloVe text", "dim": 2, "without_vector": "mean"}
    assert found.artifact.settings == settings
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert found.artifact.lineage == {
        "vector_file": {"digest": digest, "settings": {"file": "glove.txt"}},
        "vocabulary": {"digest": "f" * 64, "settings": {}},
    }


def test_the_shipped_file_means_no_vectors(tmp_path):
    assert load_vectors(ROOT / NO_VECTORS, WORDS) is None
    assert read_word_vectors(tmp_path / "v.h5") is None


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("kind: some\n", ["kind: input should be 'random', got 'some'; see weights/random_words.yaml"]),
        ("seed: 0\n", ["missing key 'kind'; unknown key 'seed'", "see weights/random_words.yaml"]),
        ("[]\n", ["expected keys and values, found list"]),
    ],
)
def test_another_yaml_is_refused(tmp_path, content, parts):
    (tmp_path / "x.yaml").write_text(content)
    with refused(f"{tmp_path}/x.yaml: ", *parts):
        load_vectors(tmp_path / "x.yaml", WORDS)


def test_a_file_without_any_of_the_words_is_refused(path):
    with refused(f"{path}: has none of the 2 words, such as 'Dog', 'A'; ", "change tokenize.lowercase"):
        load_vectors(path, ["<unk>", "Dog", "A"])


def test_coverage_counts_words_of_captions():
    found = coverage([["a", "dog", "zebra"], ["zebra", "quagga"], []], {"a": None, "dog": None})
    assert (found.words, found.missing, found.examples) == (5, 3, ["zebra", "quagga"])
    assert found.fraction_missing == 0.6
    assert coverage([], {}).fraction_missing == 0


def test_coverage_and_what_looks_wrong_are_printed(path):
    glove(path, {"dog": [3.0, 5.0], "a": [1.0, 1.0]})
    path.write_bytes(path.read_bytes() + b"dog 1 2\ncaf\xe9 1 2\n")
    captioned = [
        Captioned("1.jpg", "train", ("zebra quagga", "quagga"), ()),
        Captioned("2.jpg", "val", ("a dog",), ()),
        Captioned("3.jpg", "gallery", (), ()),
    ]
    sentences = {
        "1.jpg#0": ("train", ["zebra", "quagga"]),
        "1.jpg#1": ("train", ["quagga"]),
        "2.jpg#0": ("val", ["a", "dog"]),
    }
    encoded = {"1.jpg#0": [0], "1.jpg#1": [0], "2.jpg#0": [1, 2]}
    summary, warnings = describe_vectors(load_vectors(path, WORDS), WORDS, sentences, encoded, captioned)
    assert summary == (
        "glove.txt: GloVe text, 4 words, 2 dimensions; 2 of 4 words have vectors; "
        "without one are 100.00% of the words of train, 0.00% of the words of val, such as 'quagga', 'zebra'"
    )
    assert warnings == [
        f"{path}: 1 words come more than once; the first vector of each is used",
        f"{path}: 1 words are not UTF-8 and were left out",
        "only 0% of the training words have vectors; is tokenize.lowercase as the file needs it?",
        "2 captions have no known word and become one unknown word",
        "1 images have no caption with a known word; the first is '1.jpg'",
    ]
