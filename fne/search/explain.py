"""The words that matter in an answer: those of the sentence, for each image; or those of each sentence found.

What a word is worth is how much the score drops without it: see `fne.matching.word_removal`.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fne.core.errors import InputError
from fne.matching.word_removal import (
    Removals,
    Word,
    encode_removals,
    leave_out,
    leave_out_of_text,
    score_words,
)
from fne.search.answer import Answer
from fne.search.open_project import Space
from fne.search.snapshot import Snapshot


def explain_images(snapshot: Snapshot, answer: Answer, space: Space) -> Answer:
    """Return an answer about images in which each match has the words of the query."""
    assert answer.text is not None
    vectors = [space.row(match.id) for match in answer.matches]
    found = explain(snapshot, [answer.text], np.array(vectors))
    return _with_words(answer, found)


def explain_sentences(snapshot: Snapshot, answer: Answer, image: np.ndarray) -> Answer:
    """Return an answer about sentences in which each match has its own words, given the image's vector."""
    texts = [match.sentences[0] for match in answer.matches]
    return _with_words(answer, explain(snapshot, texts, image[None]))


def explain(snapshot: Snapshot, texts: Sequence[str], images: np.ndarray) -> list[list[Word]]:
    """Return the words of one sentence for each image (images, dim), or those of each sentence for one."""
    if snapshot.reader:  # a text network, which reads text
        removals: list[Removals] = [leave_out_of_text(text) for text in texts]
        vectors = encode_removals(removals, snapshot.reader) if removals else []
    elif snapshot.encoder and snapshot.vocabulary:
        removals = [leave_out(text, snapshot.vocabulary) for text in texts]
        vectors = encode_removals(removals, snapshot.encoder) if removals else []
    else:
        raise InputError(
            "words cannot be left out: the vectors of captions were imported, and the encoder that computed "
            "them is unknown"
        )
    many = max(len(texts), len(images)) if texts else 0
    chosen = [(each % len(texts), each % len(images)) for each in range(many)]
    return [
        score_words(removals[text].words, images[image], vectors[text], snapshot.compare)
        for text, image in chosen
    ]


def _with_words(answer: Answer, found: Sequence[list[Word]]) -> Answer:
    pairs = zip(answer.matches, found, strict=True)
    return replace(answer, matches=[replace(match, words=words) for match, words in pairs])
