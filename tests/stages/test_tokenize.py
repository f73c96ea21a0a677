from pathlib import Path

from fne.text.tokens import read_tokens
from fne.text.vocabulary import read_vocabulary
from fne.text.word_vectors import read_word_vectors
from tests.support.projects import change_params
from tests.support.stages import refusal
from tests.support.vectors import glove

VECTORS = {"number": [1.0, 2.0], "a": [3.0, 4.0], **{f"{each:02d}": [float(each), 0.5] for each in range(14)}}


def test_words_of_the_test_captions_stay_unknown(run):
    assert run("tokenize").output == "40 captions, 19 words\n"
    words = read_vocabulary(Path("captions/vocabulary.json")).words
    assert {"number", "a", ".", "00", "15"} <= set(words)
    assert "16" not in words  # the first test image
    tokens = read_tokens(Path("captions/tokens.h5"))
    assert [words[number] for number in tokens.read("16.png#1")] == ["a", "<unk>", "."]
    assert [words[number] for number in tokens.read("00.png#1")] == ["a", "00", "."]


def test_a_vocabulary_of_test_captions_cannot_be_asked_for(run):
    change_params(Path(), {"tokenize": {"vocabulary": ["train", "test"]}})
    assert "section 'tokenize': vocabulary: 'test' is not one of 'train', 'val'" in refusal("tokenize")


def test_without_vectors_the_artifact_is_empty_and_the_others_do_not_mention_them(run):
    run("tokenize")
    assert read_word_vectors(Path("captions/vectors.h5")) is None
    settings = {"lowercase": True, "min_count": 1, "end_of_sentence": False, "vocabulary": ["train", "val"]}
    settings |= {"cut": "nltk", "longest": 0}
    assert read_vocabulary(Path("captions/vocabulary.json")).artifact.settings == settings
    assert read_tokens(Path("captions/tokens.h5")).artifact.settings == settings | {"words": 20}


def test_pretrained_vectors_are_ordered_by_the_numbers_of_their_words(run):
    glove(Path("glove"), VECTORS)
    change_params(Path(), {"tokenize": {"vectors": "glove", "without_vector": "mean"}})
    result = run("tokenize")
    assert result.exit_code == 0
    assert "2 dimensions; 16 of 19 words have vectors; without one are 20.00% of the words" in result.stdout
    words = read_vocabulary(Path("captions/vocabulary.json")).words
    vectors = read_word_vectors(Path("captions/vectors.h5"))
    assert len(vectors.values) == len(words) == 20
    for word, row, found in zip(words, vectors.values.tolist(), vectors.found, strict=True):
        assert found == (word in VECTORS)
        if found:
            assert row == VECTORS[word]


def test_words_without_a_vector_can_be_dropped(run):
    glove(Path("glove"), VECTORS)
    change_params(Path(), {"tokenize": {"vectors": "glove", "without_vector": "drop", "longest": 1}})
    assert run("tokenize").exit_code == 0
    words = read_vocabulary(Path("captions/vocabulary.json")).words
    assert sorted(words) == sorted(["<unk>", *VECTORS])
    tokens = read_tokens(Path("captions/tokens.h5"))
    assert [words[number] for number in tokens.read("16.png#0")] == ["number"]
    assert [words[number] for number in tokens.read("16.png#1")] == ["a"]
    assert tokens.artifact.settings["without_vector"] == "drop"


def test_the_digest_of_the_vectors_is_in_the_lineage_of_what_is_made_from_them(run):
    digests = []
    for value in (1.0, 2.0):
        glove(Path("glove"), VECTORS | {"a": [value, value]})
        change_params(Path(), {"tokenize": {"vectors": "glove"}})
        run("tokenize")
        lineage = read_word_vectors(Path("captions/vectors.h5")).artifact.lineage
        digests.append(lineage["vector_file"]["digest"])
    assert digests[0] != digests[1]


def test_a_faulty_file_of_vectors_is_one_line(run):
    Path("bad.txt").write_text("dog 1 2\ncat 3 4 5\n")
    change_params(Path(), {"tokenize": {"vectors": "bad.txt"}})
    assert refusal("tokenize").startswith("bad.txt: line 2: 3 values where line 1 has 2; expected GloVe")
    assert not Path("captions/tokens.h5").exists()
