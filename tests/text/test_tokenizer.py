import subprocess
import sys
from contextlib import contextmanager

import pytest

from fne.text import tokenizer
from fne.text.tokenizer import CUTS, END, sentences, tokenize, without_package_init
from fne.text.vocabulary import UNKNOWN
from tests.support.imports import ROOT

# Compares the tokenizer that was imported alone with that of a full import of NLTK, in a new process.
ALONE = r"""
import random, sys
from fne.text.tokenizer import sentences, tokenize

parts = ["a", "dog", "'s", "can't", "cannot", "gonna", "'", '"', "``", "--", "...", "(", ")", "[x]", ",", ".", "?!",
         "3,000", "$5", "e.g.", "T-shirt", "\u2019s", "\u2014", "<unk>", "it is", "'tis", "d'ye", "50%", ":", ";", "\n"]
chance = random.Random(0)
texts = [chance.choice(["", " "]).join(chance.choices(parts, k=chance.randrange(12))) for _ in range(3000)]
alone = [tokenize(text, lowercase=False) for text in texts]
print(sorted({"nltk", "scipy", "sklearn", "numpy"} & sys.modules.keys()))

from nltk.tokenize import NLTKWordTokenizer
reference = NLTKWordTokenizer()
cut = lambda text: [word for each in sentences(text) for word in reference.tokenize(each)]
print(sum(len(words) for words in alone) > 9000, alone == [cut(text) for text in texts])
"""


@pytest.mark.parametrize(
    ("cut", "lowercase", "caption", "words"),
    [
        ("nltk", True, "Two Dogs, one ball.", ["two", "dogs", ",", "one", "ball", "."]),
        ("nltk", True, "It's the dog's", ["it", "'s", "the", "dog", "'s"]),
        ("nltk", True, "<unk> \U0001f600", ["<", "unk", ">", "\U0001f600"]),
        ("nltk", False, "A Dog", ["A", "Dog"]),
        ("split", False, "A T-shirt, (red).  Why?", ["A", "T", "shirt", "red", "Why"]),
        ("split", False, "dog's \tball\n", ["dog's", "ball"]),
        ("split", False, f"<unk> {END}", ["unk", "eos"]),
        ("split", False, "-.,", []),
    ],
)
def test_words_are_cut_as_nltk_cuts_them_or_at_blanks_and_marks(cut, lowercase, caption, words):
    assert tokenize(caption, lowercase, cut=cut) == words


@pytest.mark.parametrize("cut", CUTS)
def test_no_caption_has_the_words_for_ends_and_unknown_words(cut):
    assert not {END, UNKNOWN} & {*tokenize(f"{END}{UNKNOWN} {END} {UNKNOWN}.", lowercase=False, cut=cut)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A dog sits. It is brown.", ["A dog sits.", "It is brown."]),
        ("Is it a dog? Yes! It is.", ["Is it a dog?", "Yes!", "It is."]),
        ("Mr. Smith and Dr. Who meet.", ["Mr. Smith and Dr. Who meet."]),
        ("A sign says 'Go.' A man waits.", ["A sign says 'Go.'", "A man waits."]),
        ("Player J. Smith scores 3.5 points.", ["Player J. Smith scores 3.5 points."]),
        ('A sign says " Go . " A man waits .', ['A sign says " Go . "', "A man waits ."]),
        ('A sign says " Go . "', ['A sign says " Go . "']),
        ("A dog in the snow .", ["A dog in the snow ."]),
        ("", [""]),
    ],
)
def test_sentences_end_with_a_mark_before_a_blank_except_after_abbreviations(text, expected):
    assert sentences(text) == expected


def test_no_data_is_downloaded(monkeypatch):
    monkeypatch.setattr("nltk.data.find", lambda *_: pytest.fail("the tokenizer looked for data"))
    assert tokenize("a dog. a cat.", lowercase=True) == ["a", "dog", ".", "a", "cat", "."]


def test_the_tokenizer_imported_alone_cuts_as_that_of_nltk_which_can_still_be_imported():
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", ALONE], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert done.stdout == "[]\nTrue True\n"


def test_a_version_of_nltk_whose_tokenizer_needs_other_modules_is_imported_with_them(monkeypatch):
    @contextmanager
    def useless(*names):
        raise ImportError("cannot import name 'data' from 'nltk'")
        yield

    monkeypatch.setattr(tokenizer, "without_package_init", useless)
    monkeypatch.setattr(tokenizer, "_word_tokenizer", tokenizer._word_tokenizer.__wrapped__)
    assert tokenize("it's", lowercase=True) == ["it", "'s"]


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package whose own code must not run, with a module deep inside."""
    (tmp_path / "heavy/inner").mkdir(parents=True)
    (tmp_path / "heavy/__init__.py").write_text("raise RuntimeError('ran')")
    (tmp_path / "heavy/inner/__init__.py").write_text("raise RuntimeError('ran')")
    (tmp_path / "heavy/other.py").write_text("value = 3")
    (tmp_path / "heavy/inner/light.py").write_text("from heavy import other\nvalue = other.value")
    monkeypatch.syspath_prepend(tmp_path)


def test_a_module_is_imported_without_the_packages_above_it_and_is_gone_afterwards(package):
    with without_package_init("heavy", "heavy.inner"):
        from heavy.inner import light
    assert light.value == 3
    assert [name for name in sys.modules if name.startswith("heavy")] == []
    with pytest.raises(RuntimeError, match="ran"):
        import heavy  # noqa: F401


def test_a_package_that_is_imported_already_stays_as_it_is():
    import json.decoder

    with without_package_init("json"):
        import json as again
    assert again is json
    assert sys.modules["json.decoder"] is json.decoder


@pytest.mark.parametrize("names", [("nowhere_to_be_found",), ("heavy", "heavy.missing")])
def test_a_missing_package_is_named_and_leaves_nothing_imported(package, names):
    with (
        pytest.raises(ModuleNotFoundError, match=f"No module named '{names[-1]}'"),
        without_package_init(*names),
    ):
        pass
    assert [name for name in sys.modules if name.startswith("heavy")] == []
