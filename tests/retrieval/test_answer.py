import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fne.core.errors import InputError
from fne.retrieval.answer import Answer, Match, best


@given(st.lists(st.integers(-3, 3), max_size=20), st.integers(1, 25))
def test_the_best_come_first_and_equal_ones_in_their_order(scores, k):
    expected = sorted(range(len(scores)), key=lambda position: (-scores[position], position))[:k]
    assert best(np.array(scores, dtype=np.float64), k) == expected


def test_what_is_not_a_number_is_refused():
    with pytest.raises(InputError) as error:
        best(np.array([1.0, np.nan]), 1)
    assert error.value.message == "1 of 2 scores are not numbers; train the model again"


def test_hostile_text_cannot_steer_the_terminal():
    match = Match(1, 0.5, "a\x1b]0;x\x07.png", "a", None, ["evil\r\x1b[2Jline\nbreak"], None)
    answer = Answer("images", "a\ndog\x9b", None, None, "model", "cosine", "the catalog", 1, [match])
    assert all(letter.isprintable() for line in answer.lines() for letter in line)
    assert answer.lines()[0].startswith("images for “a dog ”, by model")
