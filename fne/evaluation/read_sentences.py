"""Scores of images of a split with sentences that are read again: whole, and without each of their words."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

import numpy as np

from fne.matching.model_file import ModelFile, read_model, read_model_file, require_same_model
from fne.matching.numpy_model import PREFIX, SIMILARITY, TEXT_ENCODER, Similarity, cosine, embed_sentences
from fne.matching.word_removal import Encoder, Word, encode_removals, leave_out, score_words
from fne.store.artifact import Artifact, merge
from fne.store.rows import Rows
from fne.text.caption_vectors import has_caption_rows
from fne.text.vocabulary import Vocabulary, read_vocabulary


@dataclass(frozen=True)
class SentenceReader:
    """A model with what it needs to read sentences, and the vectors of images."""

    encode: Encoder
    compare: Similarity
    vocabulary: Vocabulary
    images: Rows

    @classmethod
    def open(cls, model: Path, vocabulary: Path, images: Path, evaluation: Artifact) -> Self | None:
        """Open what an evaluation was made with; None if the model reads rows of captions."""
        file = read_model_file(model, PREFIX)
        artifact = file.artifact
        words, vectors = read_vocabulary(vocabulary), Rows.open(images, "image_vectors")
        if has_caption_rows(artifact.lineage):
            return None
        merge(artifact, words.artifact, vectors.artifact, evaluation)
        require_same_model(artifact, vectors.artifact, evaluation)
        return cls(*_functions(file), words, vectors)

    def words(self, pairs: Iterable[tuple[str, str]]) -> dict[tuple[str, str], list[Word]]:
        """Return how much each word matters, for pairs of the id of an image and a sentence."""
        listed = list(dict.fromkeys(pairs))
        if not listed:
            return {}
        texts = list(dict.fromkeys(text for _, text in listed))
        removals = {text: leave_out(text, self.vocabulary) for text in texts}
        vectors = dict(zip(texts, encode_removals(list(removals.values()), self.encode), strict=True))
        ids = list(dict.fromkeys(image for image, _ in listed))
        images = dict(zip(ids, self.images.read(ids), strict=True))
        return {
            (image, text): score_words(removals[text].words, images[image], vectors[text], self.compare)
            for image, text in listed
        }

    def best(self, image: str, texts: Sequence[str]) -> int:
        """Return the position of the sentence that fits an image best."""
        vectors = self.encode([leave_out(text, self.vocabulary).variants[0] for text in texts])
        return int(np.argmax(self.compare(self.images.read([image]), vectors)))


def _functions(model: ModelFile) -> tuple[Encoder, Similarity]:
    """Return what encodes sentences with a model, and compares their vectors with those of images."""
    if [model.shape.get(each) for each in ("text_encoder", "similarity")] == [TEXT_ENCODER, SIMILARITY]:
        return partial(embed_sentences, model), cosine
    import torch  # torch: slow to import

    from fne.matching.encode import encode_sentences

    matcher = read_model(model.artifact.path)[0]

    def compare(images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        found: np.ndarray = matcher.similarity(torch.from_numpy(images), torch.from_numpy(captions)).numpy()
        return found

    return partial(encode_sentences, matcher), compare
