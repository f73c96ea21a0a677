"""The default model in NumPy, for what does not import torch: tf-idf and cosine.

Importing torch would take longer than a whole search. Every other text encoder and similarity is computed
with torch, which a command imports at each call, and a server once.

A similarity is called as `similarity(images, captions)` with vectors (images, dim) and (captions, dim), one
of which is a single row. It returns one score for each row of the other; higher is better.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fne.matching.model_file import ModelFile, not_a_model

PREFIX = "text_encoder."
# What is computed here.
TEXT_ENCODER, SIMILARITY = "tfidf", "cosine"
MIN_NORM = 1e-12  # the lower bound of torch's `normalize`

Similarity = Callable[[np.ndarray, np.ndarray], np.ndarray]


def embed_sentences(model: ModelFile, sentences: Sequence[Sequence[int]]) -> np.ndarray:
    """Return the vectors (sentences, embed_dim) of sentences in the joint space, given their word numbers."""
    weights = {name.removeprefix(PREFIX): value for name, value in model.weights.items()}
    try:
        vectors = np.stack([tfidf(weights["words.weight"][list(numbers)], weights) for numbers in sentences])
        absolute = model.shape["absolute"]
    except (KeyError, IndexError, ValueError) as error:
        raise not_a_model(model.artifact.path, error) from None
    norms = np.array([[np.linalg.norm(vector)] for vector in vectors], dtype=vectors.dtype)
    unit: np.ndarray = vectors / np.maximum(norms, MIN_NORM)
    return np.abs(unit) if absolute else unit


def tfidf(words: np.ndarray, weights: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the weighted sum of the word vectors, divided by the norm of the weights, mapped linearly.

    The last column of `words` (words, word_dim) holds the weights of the words; `weights` are named as in
    `fne.matching.text_encoders`.
    """
    norm = np.linalg.norm(words[:, -1], float(weights["order"][0]))
    total = words[:, :-1].sum(axis=0) / (norm if norm > 0 else 1.0)
    mapped: np.ndarray = weights["map.weight"] @ total + weights["map.bias"]
    return mapped.astype(words.dtype, copy=False)


def cosine(images: np.ndarray, captions: np.ndarray) -> np.ndarray:
    """Return inner products, which are cosines because all vectors have length one.

    A score depends only on its two vectors, not on the other rows: equal images have equal scores.
    """
    products: np.ndarray = np.vecdot(images, captions)
    return products
