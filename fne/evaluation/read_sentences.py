"""Scores of images of a split with sentences that are read again: whole, and without each of their words."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np

from fne.matching.model_file import read_model, require_same_model
from fne.matching.word_removal import Word, encode_removals, leave_out, score_words
from fne.store.artifact import Artifact, merge
from fne.store.rows import Rows
from fne.text.caption_vectors import has_caption_rows
from fne.text.vocabulary import Vocabulary, read_vocabulary

if TYPE_CHECKING:
    from fne.matching.model import Matcher


@dataclass(frozen=True)
class SentenceReader:
    """A model with what it needs to read sentences, and the vectors of images."""

    matcher: "Matcher"
    vocabulary: Vocabulary
    images: Rows

    @classmethod
    def open(cls, model: Path, vocabulary: Path, images: Path, evaluation: Artifact) -> Self | None:
        """Open what an evaluation was made with; None if the model reads rows of captions."""
        matcher, artifact = read_model(model)
        words, vectors = read_vocabulary(vocabulary), Rows.open(images, "image_vectors")
        if has_caption_rows(artifact.lineage):
            return None
        merge(artifact, words.artifact, vectors.artifact, evaluation)
        require_same_model(artifact, vectors.artifact, evaluation)
        return cls(matcher, words, vectors)

    def words(self, pairs: Iterable[tuple[str, str]]) -> dict[tuple[str, str], list[Word]]:
        """Return how much each word matters, for pairs of the id of an image and a sentence."""
        listed = list(dict.fromkeys(pairs))
        if not listed:
            return {}
        texts = list(dict.fromkeys(text for _, text in listed))
        removals = {text: leave_out(text, self.vocabulary) for text in texts}
        vectors = dict(zip(texts, encode_removals(list(removals.values()), self._encode), strict=True))
        ids = list(dict.fromkeys(image for image, _ in listed))
        images = dict(zip(ids, self.images.read(ids), strict=True))
        return {
            (image, text): score_words(removals[text].words, images[image], vectors[text], self._compare)
            for image, text in listed
        }

    def best(self, image: str, texts: Sequence[str]) -> int:
        """Return the position of the sentence that fits an image best."""
        vectors = self._encode([leave_out(text, self.vocabulary).variants[0] for text in texts])
        return int(np.argmax(self._compare(self.images.read([image]), vectors)))

    def _encode(self, sentences: Sequence[Sequence[int]]) -> np.ndarray:
        from fne.matching.encode import encode_sentences  # torch: slow to import

        return encode_sentences(self.matcher, sentences)

    def _compare(self, images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        import torch  # torch: slow to import

        found: np.ndarray = self.matcher.similarity(
            torch.from_numpy(images), torch.from_numpy(captions)
        ).numpy()
        return found
