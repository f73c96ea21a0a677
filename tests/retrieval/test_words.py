from pathlib import Path

import pytest

from fne.captions.tokens import END
from fne.captions.vocabulary import Vocabulary
from fne.core.errors import InputError
from fne.retrieval.words import read_sentence
from fne.store.lineage import Artifact

WORDS = ["<unk>", "a", ".", "dog", "brown", "runs"]


def vocabulary(lowercase: bool = True) -> Vocabulary:
    return Vocabulary(Artifact(Path("vocabulary.json"), "vocabulary", "", {"lowercase": lowercase}), WORDS)


def test_a_sentence_becomes_numbers_and_unknown_words_are_told_once():
    sentence = read_sentence("A brown zebra runs, a zebra.", vocabulary())
    assert sentence.numbers == [1, 4, 0, 5, 0, 1, 0, 2]
    assert sentence.unknown == ["zebra"]


def test_the_end_of_a_sentence_is_read_where_captions_had_one():
    settings = {"lowercase": True, "end_of_sentence": True}
    ending = Vocabulary(Artifact(Path("v"), "vocabulary", "", settings), [*WORDS, END])
    assert read_sentence("a dog", ending).numbers == [1, 3, 6]
    with pytest.raises(InputError):
        read_sentence("zebra", ending)


def test_case_counts_where_the_vocabulary_keeps_it():
    assert read_sentence("A dog", vocabulary(lowercase=False)).unknown == ["A"]


@pytest.mark.parametrize("text", ["", "  ", ".", "?! --"])
def test_a_query_without_words_is_refused(text):
    with pytest.raises(InputError) as error:
        read_sentence(text, vocabulary())
    assert error.value.message == f"the query {text!r} has no words; describe what the image shows"


def test_a_query_of_unknown_words_only_is_refused():
    with pytest.raises(InputError) as error:
        read_sentence("zebra quagga.", vocabulary())
    assert error.value.message == (
        "the model knows no word of 'zebra quagga.'; it knows the 5 words of vocabulary.json, "
        "such as dog, brown, runs"
    )
