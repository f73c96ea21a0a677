"""Captions as bags of words, and features of captions that are sums over their words.

A caption's features are the weighted sum of the vectors of its words, divided by the norm of their weights:

    features = sum(weight[w] * table[w] for w in caption) / norm(weight[w] for w in caption)

A word that occurs twice counts twice. One-hot vectors, inverse document frequencies as weights and the norm
of order 2 give tf-idf rows (of length one except for repeated words); word vectors, equal weights and the
norm of order 1 give the mean of the word vectors. Without a word of positive weight, features are zero.
A caption that has a row in place of words counts as one word of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

UNKNOWN = 0  # the number of unknown words; see `fne.text.vocabulary`
BLOCK = 2048  # captions whose pairs of words are counted at once
EXACT = 4096  # up to this many words, all eigenvectors are computed
SMALL = 512  # up to this many words, in float64; float32 takes half of the time
OVERSAMPLING = 1.1
ITERATIONS = 8


@dataclass(frozen=True)
class Bags:
    """The word numbers of captions, one caption after the other."""

    words: np.ndarray  # (occurrences) in all captions
    offsets: np.ndarray  # where each caption starts, and the end of the last one (captions + 1)

    @classmethod
    def of(cls, captions: Sequence[np.ndarray]) -> "Bags":
        """Join captions, each an array of word numbers."""
        offsets = np.concatenate([[0], np.cumsum([len(each) for each in captions], dtype=np.int64)])
        words = [np.empty(0, dtype=np.int64), *(np.asarray(each, dtype=np.int64) for each in captions)]
        return cls(np.concatenate(words), offsets.astype(np.int64))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def select(self, positions: np.ndarray) -> "Bags":
        """Return some of the captions, in the given order."""
        return Bags.of([self.words[self.offsets[each] : self.offsets[each + 1]] for each in positions])

    @property
    def owners(self) -> np.ndarray:
        """The caption of each occurrence (occurrences)."""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))


@dataclass(frozen=True)
class WordFeatures:
    """How words become features of captions."""

    table: Tensor  # the vector of each word (words, dim), in float64, or in float32 for less exact features
    weights: np.ndarray  # the weight of each word (words)
    order: float  # the norm of the weights, 1 or 2
    # The map from rows of captions to the table, which has a row per caption.
    components: "Components | None" = None

    @property
    def dim(self) -> int:
        """The number of features."""
        return int(self.table.shape[1])

    def of(self, bags: Bags) -> Tensor:
        """Return the features of captions (captions, dim)."""
        weights = occurrence_weights(bags, self.weights, self.order)
        words, starts = torch.from_numpy(bags.words), torch.from_numpy(bags.offsets[:-1])
        scales = torch.from_numpy(weights).to(self.table.dtype)
        if not len(words):
            return self.table.new_zeros((len(bags), self.dim))
        return functional.embedding_bag(words, self.table, starts, mode="sum", per_sample_weights=scales)


@dataclass(frozen=True)
class Components:
    """A map of rows: what is subtracted, and the principal components."""

    mean: Tensor  # (features) in float64
    basis: Tensor  # (features, dim) in float64


def inverse_document_frequencies(bags: Bags, words: int, min_count: int) -> np.ndarray:
    """Return log(captions / captions with the word) (words); 0 for unknown words and those below `min_count`.

    Example:
        >>> bags = Bags.of([np.array([1, 2, 2]), np.array([1, 0])])
        >>> inverse_document_frequencies(bags, words=4, min_count=1).round(2).tolist()
        [0.0, 0.0, 0.69, 0.0]
    """
    pairs = np.unique(bags.owners * words + bags.words)
    counts = np.bincount(pairs % words, minlength=words)
    weights = np.log(len(bags) / np.maximum(counts, 1))
    weights[counts < max(1, min_count)] = 0.0
    weights[UNKNOWN] = 0.0
    return weights


def occurrence_weights(bags: Bags, weights: np.ndarray, order: float) -> np.ndarray:
    """Return the weight of each occurrence, divided by the norm of its caption's weights (occurrences)."""
    each = weights[bags.words]
    norms = np.bincount(bags.owners, np.abs(each) ** order, minlength=len(bags)) ** (1 / order)
    scaled: np.ndarray = each / np.where(norms > 0, norms, 1.0)[bags.owners]
    return scaled


def second_moment(bags: Bags, weights: np.ndarray, kept: np.ndarray, order: float) -> Tensor:
    """Return the second moment of the weighted counts of some words (kept, kept), one caption per sample.

    Only pairs of words in one caption are visited: the time does not grow with the square of the vocabulary.
    """
    place = np.full(len(weights), -1, dtype=np.int64)
    place[kept] = np.arange(len(kept))
    known = place[bags.words] >= 0
    owners, places = bags.owners[known], place[bags.words[known]]
    values = occurrence_weights(bags, weights, order)[known]
    starts = np.searchsorted(owners, np.arange(len(bags) + 1))
    total = np.zeros(len(kept) * len(kept))
    for first in range(0, len(bags), BLOCK):
        ends = starts[first : first + BLOCK + 1]
        lengths = np.diff(ends)
        if not lengths.any():
            continue
        inside = np.arange(lengths.max()) < lengths[:, None]  # (captions, longest)
        numbers = np.zeros(inside.shape, dtype=np.int64)
        padded = np.zeros(inside.shape)
        numbers[inside], padded[inside] = places[ends[0] : ends[-1]], values[ends[0] : ends[-1]]
        pairs = numbers[:, :, None] * len(kept) + numbers[:, None, :]  # padding adds zeros to word 0
        np.add.at(total, pairs.ravel(), (padded[:, :, None] * padded[:, None, :]).ravel())
    return torch.from_numpy(total.reshape(len(kept), len(kept)) / max(1, len(bags)))


def leading_eigenvectors(matrix: Tensor, count: int) -> Tensor:
    """Return the eigenvectors of the largest eigenvalues of a positive semidefinite matrix (size, count).

    Up to `EXACT` rows they come from a full decomposition, in float32 beyond `SMALL` rows. Beyond `EXACT`,
    subspace iteration from a fixed seed finds nearly the same space in a small part of the time.
    """
    size = len(matrix)
    count = min(count, size)
    if size <= EXACT:
        _, vectors = torch.linalg.eigh(matrix if size <= SMALL else matrix.float())
        return _fix_signs(vectors.flip(1)[:, :count].to(matrix.dtype))
    columns = min(size, int(count * OVERSAMPLING) + 8)
    space = torch.rand((size, columns), dtype=matrix.dtype, generator=torch.Generator().manual_seed(0)).sub_(
        0.5
    )
    for _ in range(ITERATIONS):
        space, _ = torch.linalg.qr(matrix @ space)
    _, vectors = torch.linalg.eigh(space.T @ matrix @ space)
    return _fix_signs((space @ vectors.flip(1))[:, :count])


def tfidf_features(bags: Bags, weights: np.ndarray, dim: int) -> WordFeatures:
    """Return tf-idf features, reduced by latent semantic analysis (LSA).

    Args:
        weights: of all words, 0 for words that are ignored (words).
        dim: how many eigenvectors of the second moment are kept; 0 for one feature per word.
    """
    kept = np.flatnonzero(weights)
    if dim:
        basis = leading_eigenvectors(second_moment(bags, weights, kept, order=2.0), dim)
    else:
        basis = torch.eye(len(kept), dtype=torch.float64)
    table = torch.zeros((len(weights), basis.shape[1]), dtype=torch.float64)
    table[torch.from_numpy(kept)] = basis
    return WordFeatures(table, weights, order=2.0)


def mean_features(vectors: np.ndarray) -> WordFeatures:
    """Return features that are the mean of word vectors (words, dim), unknown words left out."""
    weights = np.ones(len(vectors))
    weights[UNKNOWN] = 0.0
    return WordFeatures(torch.from_numpy(vectors.astype(np.float64)), weights, order=1.0)


def row_features(values: np.ndarray, training: np.ndarray, dim: int) -> WordFeatures:
    """Return features that are rows of captions, reduced to their principal components.

    Args:
        values: the rows (captions, features) of all captions.
        training: the positions of the training captions, which decide mean and components.
        dim: how many components are kept; 0 for all values as they are, minus their mean.
    """
    features = values.shape[1]
    total, moment = torch.zeros(features, dtype=torch.float64), torch.zeros(features, features).double()
    blocks = [training[first : first + BLOCK] for first in range(0, len(training), BLOCK)]
    reduced = 0 < dim < features
    for places in blocks:
        total += torch.from_numpy(values[places]).sum(dim=0, dtype=torch.float64)
    mean = total / len(training)
    for places in blocks if reduced else []:
        centered = torch.from_numpy(values[places]).float() - mean.float()
        moment += centered.T @ centered
    every = torch.eye(features, dtype=torch.float64)
    basis = leading_eigenvectors(moment / len(training), dim) if reduced else every
    table = torch.empty((len(values), basis.shape[1]))
    for first in range(0, len(values), BLOCK):
        centered = torch.from_numpy(values[first : first + BLOCK]).float() - mean.float()
        table[first : first + BLOCK] = centered @ basis.float() if reduced else centered
    return WordFeatures(table, np.ones(len(values)), order=1.0, components=Components(mean, basis))


def _fix_signs(vectors: Tensor) -> Tensor:
    """Make the largest entry of each column positive: libraries of linear algebra differ in signs."""
    largest = vectors.abs().argmax(dim=0, keepdim=True)
    return vectors * vectors.gather(0, largest).sign()
