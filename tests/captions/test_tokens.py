import pytest

from fne.captions.tokens import tokenize


@pytest.mark.parametrize(
    ("caption", "words"),
    [
        ("Two Dogs, one ball.", ["two", "dogs", ",", "one", "ball", "."]),
        ("It's the dog's", ["it", "'s", "the", "dog", "'s"]),
        ("<unk> \U0001f600", ["<", "unk", ">", "\U0001f600"]),
    ],
)
def test_words_are_cut_as_nltk_cuts_them(caption, words):
    assert tokenize(caption, lowercase=True) == words


def test_case_can_be_kept():
    assert tokenize("A Dog", lowercase=False) == ["A", "Dog"]


def test_no_data_is_downloaded(monkeypatch):
    monkeypatch.setattr("nltk.data.find", lambda *_: pytest.fail("the tokenizer looked for data"))
    assert tokenize("a dog. a cat.", lowercase=True) == ["a", "dog.", "a", "cat", "."]
