import numpy as np
import pytest

from fne.core.errors import InputError
from fne.text.caption_vocabulary import (
    CUTS,
    END,
    UNKNOWN,
    alphanumeric_words,
    choose_caption_words,
    ptb_words,
)

SENTENCES = [["a", "dog", "runs"], ["a", "dog"], ["a", "cat"]]


def test_frequent_words_come_first_ties_are_alphabetical_and_the_rest_is_unknown():
    chosen = choose_caption_words(SENTENCES, min_count=1, max_words=10)
    assert (chosen.words, chosen.counts) == (["a", "dog", "cat", "runs"], [3, 2, 1, 1])
    assert (chosen.unknown, chosen.outputs, chosen.start) == (0, 6, 6)
    chosen = choose_caption_words(SENTENCES, min_count=2, max_words=1)
    assert (chosen.words, chosen.unknown) == (["a"], 4)
    assert chosen.encode(["a", "dog"], max_length=5) == [2, UNKNOWN, END]


def test_no_word_left_is_an_error_that_names_the_most_frequent():
    with pytest.raises(InputError, match="the most frequent, 'a', occurs 3 times; lower min_count"):
        choose_caption_words(SENTENCES, min_count=4, max_words=10)
    with pytest.raises(InputError, match="there are none"):
        choose_caption_words([[], []], min_count=1, max_words=10)


def test_a_caption_of_more_words_than_allowed_is_cut_and_does_not_end():
    chosen = choose_caption_words(SENTENCES, min_count=1, max_words=10)
    assert chosen.encode(["a", "dog", "runs"], max_length=2) == [2, 3]
    assert chosen.encode(["a", "dog"], max_length=2) == [2, 3, END]
    assert chosen.encode([], max_length=2) == [END]


def test_a_sentence_comes_back_from_its_numbers():
    chosen = choose_caption_words(SENTENCES, min_count=1, max_words=10)
    assert chosen.decode(chosen.encode(["a", "cat", "runs"], 20)) == "a cat runs"
    assert chosen.decode([END, 2]) == ""
    with pytest.raises(ValueError, match="unknown word"):
        chosen.decode([2, UNKNOWN])


def test_words_named_like_special_words_do_not_clash():
    chosen = choose_caption_words([["<end>", "<unk>", "<start>", "END"]], min_count=1, max_words=10)
    numbers = chosen.encode(["<unk>", "END", "<end>"], 20)
    assert min(numbers[:-1]) > UNKNOWN
    assert chosen.decode(numbers) == "<unk> END <end>"


def test_log_frequencies_are_those_of_the_training_captions():
    chosen = choose_caption_words(SENTENCES, min_count=2, max_words=10)
    frequencies = np.exp(chosen.log_frequencies())
    assert frequencies == pytest.approx(np.array([3, 2, 3, 2]) / 10)  # END, unknown, "a", "dog"
    assert np.isfinite(choose_caption_words(SENTENCES, 1, 10).log_frequencies()).all()


@pytest.mark.parametrize(
    ("caption", "words"),
    [
        ("A man doesn't run.", ["a", "man", "does", "n't", "run"]),
        ("two-wheeled bike -- red; blue!", ["two-wheeled", "bike", "red", "blue"]),
        ("[a] {b}", ["-lsb-", "a", "-rsb-", "-lcb-", "b", "-rcb-"]),
        ("...", []),
        ("", []),
    ],
)
def test_captions_are_cut_as_coco_caption_cuts_them(caption, words):
    assert ptb_words(caption) == words
    assert ptb_words(" ".join(words)) == words


def test_alphanumeric_words_have_letters_and_digits_only():
    assert alphanumeric_words("Don't  stop: 2 T-shirts !") == ["dont", "stop", "2", "tshirts"]


def test_every_way_of_cutting_takes_any_text():
    for cut in CUTS.values():
        assert cut("<script>\u2603 \U0001f600</script>\n") is not None
