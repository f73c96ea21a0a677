"""Words of a sentence, as NLTK's word tokenizer cuts them, punctuation kept.

`nltk.word_tokenize` would first look for sentences with a model that must be
downloaded; the word tokenizer itself needs no data.
"""

from nltk.tokenize.destructive import NLTKWordTokenizer

_TOKENIZER = NLTKWordTokenizer()


def tokenize(caption: str, lowercase: bool) -> list[str]:
    """Return the words of a caption.

    Example:
        >>> tokenize("A dog's ball, (red).", lowercase=True)
        ['a', 'dog', "'s", 'ball', ',', '(', 'red', ')', '.']
    """
    words: list[str] = _TOKENIZER.tokenize(caption.lower() if lowercase else caption)
    return words
