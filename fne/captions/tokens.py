"""Words of a sentence, as NLTK's word tokenizer cuts them, punctuation kept.

`nltk.word_tokenize` would first look for sentences with a model that must be
downloaded; the word tokenizer itself needs no data.
"""

from collections.abc import Callable
from functools import cache

from fne.captions.bare import bare_packages

# No caption contains this word: NLTK cuts it at the brackets.
END = "<eos>"


def tokenize(caption: str, lowercase: bool, end_of_sentence: bool = False) -> list[str]:
    """Return the words of a caption, followed by a word for its end if asked for.

    Example:
        >>> tokenize("A dog's ball, (red).", lowercase=True)
        ['a', 'dog', "'s", 'ball', ',', '(', 'red', ')', '.']
        >>> tokenize("A dog", lowercase=False, end_of_sentence=True)
        ['A', 'dog', '<eos>']
    """
    words = _word_tokenizer()(caption.lower() if lowercase else caption)
    return [*words, END] if end_of_sentence else words


@cache
def _word_tokenizer() -> Callable[[str], list[str]]:
    try:
        with bare_packages("nltk", "nltk.tokenize"):
            from nltk.tokenize.destructive import NLTKWordTokenizer
    except ImportError:  # a version of NLTK whose tokenizer needs more than its own module
        from nltk.tokenize.destructive import NLTKWordTokenizer
    cut: Callable[[str], list[str]] = NLTKWordTokenizer().tokenize
    return cut
