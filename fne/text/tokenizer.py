"""Words of a caption: how a text is cut into words.

Captions are cut into words by NLTK's word tokenizer, which keeps punctuation, or at blanks and punctuation
marks, which are dropped. NLTK's tokenizer separates a full stop only at the end of its text, so captions are
cut into sentences before. `nltk.word_tokenize` needs a downloaded model for that; here, a full stop, an
exclamation or a question mark before a blank ends one, except after usual abbreviations and single letters.
"""

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec, module_from_spec

from fne.store.catalog import Captioned

# No caption contains this word: both tokenizers cut at the brackets.
END = "<eos>"
# The end of a sentence, with quotes and brackets that belong to it.
SENTENCE_END = re.compile(r"(?<=[.!?])(?:\s?[\"')\]]+(?=\s|$))*\s+(?![\"')\]]+(?:\s|$))")
ABBREVIATION = re.compile(
    r"(?:^|[\s(])(?:[^\W\d_]|mr|mrs|ms|dr|jr|sr|st|vs|etc|no|ft|lb|oz|e\.g|i\.e|u\.s)\.$", re.IGNORECASE
)
# Where `split` cuts, as the code of the dual-path networks does.
MARKS = re.compile(r"[\s\-.,()?<>]+")


def tokenize(caption: str, lowercase: bool, end_of_sentence: bool = False, cut: str = "nltk") -> list[str]:
    """Return the words of a caption, followed by `END` if `end_of_sentence`.

    Example:
        >>> tokenize("A dog's ball, (red).", lowercase=True)
        ['a', 'dog', "'s", 'ball', ',', '(', 'red', ')', '.']
        >>> tokenize("A dog sits. It is Mr. T.'s", lowercase=True)
        ['a', 'dog', 'sits', '.', 'it', 'is', 'mr.', 't.', "'s"]
        >>> tokenize("A dog", lowercase=False, end_of_sentence=True)
        ['A', 'dog', '<eos>']
        >>> tokenize("A dog's T-shirt, (red).", lowercase=False, cut="split")
        ['A', "dog's", 'T', 'shirt', 'red']
    """
    words = CUTS[cut](caption.lower() if lowercase else caption)
    return [*words, END] if end_of_sentence else words


def tokenize_captions(
    captioned: Sequence[Captioned], lowercase: bool, end_of_sentence: bool, cut: str
) -> dict[str, tuple[str, list[str]]]:
    """Return the split and the words of every caption, by the caption's id."""
    return {
        caption_id: (record.split, tokenize(caption, lowercase, end_of_sentence, cut))
        for record in captioned
        for caption_id, caption in zip(record.caption_ids, record.captions, strict=True)
    }


@contextmanager
def without_package_init(*names: str) -> Iterator[None]:
    """Let modules of packages, the outer ones first, be imported without running the packages' `__init__`.

    That of NLTK imports SciPy and scikit-learn, which takes two seconds; its word tokenizer needs a tenth of
    one. Afterwards the packages and their modules count as not imported, so that a later import gets all of
    them; what was taken from them stays usable. If the first package is imported already, nothing changes.
    """
    root = names[0]
    if root in sys.modules:
        yield
        return
    try:
        for name in names:
            spec = find_spec(name)
            if spec is None:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
            sys.modules[name] = module_from_spec(spec)
        yield
    finally:
        for name in [each for each in sys.modules if each == root or each.startswith(f"{root}.")]:
            del sys.modules[name]


@cache
def _word_tokenizer() -> Callable[[str], list[str]]:
    try:
        with without_package_init("nltk", "nltk.tokenize"):
            from nltk.tokenize.destructive import NLTKWordTokenizer  # nltk: slow to import
    except ImportError:  # a version of NLTK whose tokenizer needs more than its own module
        from nltk.tokenize.destructive import NLTKWordTokenizer  # nltk: slow to import
    cut: Callable[[str], list[str]] = NLTKWordTokenizer().tokenize
    return cut


def sentences(text: str) -> list[str]:
    """Return the sentences of a text.

    Example:
        >>> sentences("A dog sits. It is brown! Mr. Smith watches.")
        ['A dog sits.', 'It is brown!', 'Mr. Smith watches.']
    """
    found, start = [], 0
    for end in SENTENCE_END.finditer(text):
        sentence = text[start : end.start()] + end.group().rstrip()
        if not ABBREVIATION.search(sentence):
            found.append(sentence)
            start = end.end()
    return [*found, text[start:]]


def _nltk(text: str) -> list[str]:
    return [word for sentence in sentences(text) for word in _word_tokenizer()(sentence)]


def _split(text: str) -> list[str]:
    return [word for word in MARKS.split(text) if word]


CUTS: dict[str, Callable[[str], list[str]]] = {"nltk": _nltk, "split": _split}
