import subprocess
import sys
from contextlib import contextmanager

import pytest

from fne.captions import tokens
from fne.captions.tokens import tokenize
from tests.imports import ROOT

# Compares the tokenizer that was imported alone with that of the whole of NLTK, in a new process.
ALONE = r"""
import random, sys
from fne.captions.tokens import tokenize

parts = ["a", "dog", "'s", "can't", "cannot", "gonna", "'", '"', "``", "--", "...", "(", ")", "[x]", ",", ".", "?!",
         "3,000", "$5", "e.g.", "T-shirt", "\u2019s", "\u2014", "<unk>", "it is", "'tis", "d'ye", "50%", ":", ";", "\n"]
chance = random.Random(0)
texts = [chance.choice(["", " "]).join(chance.choices(parts, k=chance.randrange(12))) for _ in range(3000)]
alone = [tokenize(text, lowercase=False) for text in texts]
print(sorted({"nltk", "scipy", "sklearn", "numpy"} & sys.modules.keys()))

from nltk.tokenize import NLTKWordTokenizer
whole = NLTKWordTokenizer()
print(sum(len(words) for words in alone) > 9000, alone == [whole.tokenize(text) for text in texts])
"""


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


def test_the_tokenizer_alone_cuts_as_with_the_whole_of_nltk_which_can_still_be_imported():
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", ALONE], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert done.stdout == "[]\nTrue True\n"


def test_a_version_of_nltk_that_must_be_imported_whole_is(monkeypatch):
    @contextmanager
    def useless(*names):
        raise ImportError("cannot import name 'data' from 'nltk'")
        yield

    monkeypatch.setattr(tokens, "bare_packages", useless)
    monkeypatch.setattr(tokens, "_word_tokenizer", tokens._word_tokenizer.__wrapped__)
    assert tokenize("it's", lowercase=True) == ["it", "'s"]
