from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fne.matching.model import Shape, new_matcher
from fne.matching.model_file import read_model_file, write_model
from fne.matching.numpy_model import PREFIX
from fne.matching.settings import ROWS
from fne.matching.similarities import SIMILARITIES
from fne.matching.text_encoders import TEXT_ENCODERS
from fne.matching.word_removal import (
    LEVELS,
    Word,
    as_written,
    encode_removals,
    leave_out,
    levels,
    score_words,
)
from fne.search.embed_query import torch_similarity
from fne.search.snapshot import sentence_encoder
from fne.store.artifact import Artifact
from fne.text.tokenizer import END
from fne.text.vocabulary import DROP, Vocabulary
from tests.support.variants import settings_of

WORDS = ["<unk>", "a", "dog", "runs", "over", "the", "log", END]
TEXTS = ["A dog runs over the log", "a cat", "dog"]


def vocabulary(**settings: object) -> Vocabulary:
    common = {"lowercase": True, "cut": "nltk"}
    return Vocabulary(Artifact(Path("v"), "vocabulary", "", common | settings), WORDS)


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("encoder", [each for each in TEXT_ENCODERS if each not in ROWS])
def test_a_drop_is_the_score_less_that_of_the_shorter_sentence_alone(tmp_path, encoder, similarity):
    own = settings_of(encoder)
    shape = Shape(
        "linear", encoder, similarity, False, 6, len(WORDS), 5, 16, {}, own.model_dump() if own else {}
    )
    matcher = new_matcher(shape, seed=0).requires_grad_(False).eval()
    write_model(tmp_path / "model", matcher, {}, {})
    calls = []
    encode = sentence_encoder(read_model_file(tmp_path / "model", PREFIX))
    removals = [leave_out(text, vocabulary(end_of_sentence=True)) for text in TEXTS]
    found = encode_removals(removals, lambda sentences: calls.append(len(sentences)) or encode(sentences))
    assert calls == [7 + 3 + 2]
    image = matcher.embed_images(torch.randn(1, 6, generator=torch.Generator().manual_seed(1)))

    def score(words: list[str]) -> float:
        numbers = [WORDS.index(each) if each in WORDS else 0 for each in [*words, END]]
        caption = matcher.embed_captions(torch.tensor([numbers]), torch.tensor([len(numbers)]))
        return matcher.similarity(image, caption).item()

    for text, each, vectors in zip(TEXTS, removals, found, strict=True):
        words = text.lower().split()
        shown = score_words(each.words, image[0].numpy(), vectors, torch_similarity(similarity))
        assert [word.text for word in shown] == text.split()
        expected = [score(words) - score(words[:place] + words[place + 1 :]) for place in range(len(words))]
        np.testing.assert_allclose([word.drop for word in shown], expected, atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [[1, 2, 0], [2, 0], [1, 0], [1, 2]]),
        ({"without_vector": DROP}, [[1, 2], [2], [1], [1, 2]]),
        # The word that follows a cut sentence moves in.
        ({"longest": 2}, [[1, 2], [2, 0], [1, 0], [1, 2]]),
    ],
)
def test_a_shorter_sentence_is_converted_as_captions_are(settings, expected):
    assert leave_out("a dog sits", vocabulary(**settings)).variants == expected


def test_a_sentence_of_one_word_is_compared_with_one_without_a_known_word():
    assert leave_out("dog", vocabulary()).variants == [[2], [0]]


@given(st.text(max_size=40))
def test_all_words_of_a_text_are_shown(text):
    removals = leave_out(text, vocabulary())
    assert len(removals.words) == len(removals.variants) - 1
    assert as_written(text, [each.lower() for each in text.split()]) == text.split() or text.lower() != text


def test_levels_are_relative_to_the_largest_drop():
    assert levels([Word("a", -0.4), Word("b", 0.1), Word("c", 0.0)]) == [-LEVELS, 1, 0]
    assert levels([Word("a", 0.0)]) == [0]
    assert levels([]) == []
