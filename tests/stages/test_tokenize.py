from pathlib import Path

from fne.captions.vocabulary import read_vocabulary
from fne.store.tokens import read_tokens
from tests.projects import change_params


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
    result = run("tokenize")
    assert result.exit_code == 2
    assert result.stderr == (
        "Error: params.yaml: section 'tokenize': vocabulary: input should be 'train' or 'val', got 'test'\n"
    )
