"""Captions that need no captioner: baselines that a captioner must beat.

- `constant_caption`: one sentence for all images, the training caption that agrees most with the others.
- `nearest_captions`: a caption of the nearest training image.
- `consensus_captions`: of all captions of the nearest training images, the one that agrees most with
  the others (Devlin et al., 2015), by the mean tf-idf cosine of n-grams.

Captions are words separated by blanks, as in `fne.evaluation.metrics.caption_metrics`. `nearest` has the
positions of training images, the nearest first (images, neighbors), and `captions` those of each by position.
"""

import math
from collections.abc import Sequence

import numpy as np

from fne.core.errors import InputError
from fne.evaluation.metrics.caption_metrics import count_n_grams
from fne.store.rows import Rows

BLOCK = 1024  # training images compared at once


def constant_caption(captions: Sequence[Sequence[str]]) -> str:
    """Return the training caption most similar to all others, as `consensus_captions` measures it.

    Example:
        >>> constant_caption([["a dog runs", "a red car"], ["a dog runs fast"], ["two men"]])
        'a dog runs'
    """
    if not any(captions):
        raise InputError("caption baselines: there are no training captions")
    return consensus_captions(np.arange(len(captions))[None], captions)[0]


def nearest_captions(nearest: np.ndarray, captions: Sequence[Sequence[str]]) -> list[str]:
    """Return the first caption of each image's nearest training image."""
    for position in np.unique(nearest[:, :1]):
        if not captions[position]:
            raise InputError(f"caption baselines: training image {position} has no caption")
    return [captions[position][0] for position in nearest[:, 0]]


def consensus_captions(nearest: np.ndarray, captions: Sequence[Sequence[str]]) -> list[str]:
    """Return, of the captions of each image's neighbors, the one most similar to the others.

    The similarity is the mean over n from 1 to 4 of the cosine of n-gram counts, weighted by inverse document
    frequency over training images. The sum of a caption's similarities is one product with the sum of all
    vectors, so no pairs are compared. On ties the caption of the nearer image wins.
    """
    sentences = [caption.split() for each in captions for caption in each]
    texts = [caption for each in captions for caption in each]
    first = np.concatenate([[0], np.cumsum([len(each) for each in captions])]).astype(int)
    image = np.repeat(np.arange(len(captions)), np.diff(first))  # the image of each sentence
    vectors = [_UnitVectors(*entries) for entries in _weighted_n_grams(sentences, image, len(captions))]
    chosen = []
    for row, positions in enumerate(nearest):
        members = np.concatenate([np.arange(first[each], first[each + 1]) for each in positions])
        if not len(members):
            raise InputError(f"caption baselines: the neighbors of image {row} have no captions")
        agreement = sum(each.agreement(members) for each in vectors)
        chosen.append(texts[members[int(np.argmax(np.round(agreement, 9)))]])
    return chosen


def nearest_training_images(
    rows: Rows, ids: Sequence[str], training: Sequence[str], neighbors: int
) -> np.ndarray:
    """Return the positions of the nearest training images by cosine, the nearest first (images, neighbors).

    Ties go to the earlier image. Training rows are read in blocks, so that their number does not matter.
    """
    ours = _unit(rows.read(ids, np.float32))
    best = np.zeros((len(ids), 0))
    positions = np.zeros((len(ids), 0), dtype=np.int64)
    start = 0
    for block, values in rows.blocks(training, BLOCK, np.float32):
        similarity = np.concatenate([best, ours @ _unit(values).T], axis=1)
        numbers = np.broadcast_to(np.arange(start, start + len(block)), (len(ids), len(block)))
        candidates = np.concatenate([positions, numbers], axis=1)
        # Stable: of equal ones the earlier image comes first.
        order = np.argsort(-similarity, axis=1, kind="stable")[:, :neighbors]
        best = np.take_along_axis(similarity, order, axis=1)
        positions = np.take_along_axis(candidates, order, axis=1)
        start += len(block)
    return positions


class _UnitVectors:
    """Sparse vectors of sentences with length one (or zero): entries ordered by sentence."""

    def __init__(self, offsets: np.ndarray, gram: np.ndarray, value: np.ndarray, size: int) -> None:
        self.offsets, self.gram, self.value = offsets, gram, value
        self.total = np.zeros(size)

    def agreement(self, members: np.ndarray) -> np.ndarray:
        """Return the sum of the cosines of each sentence with all other members (members)."""
        lengths = self.offsets[members + 1] - self.offsets[members]
        holder = np.repeat(np.arange(len(members)), lengths)
        within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        entries = np.repeat(self.offsets[members], lengths) + within
        gram, value = self.gram[entries], self.value[entries]
        np.add.at(self.total, gram, value)
        sums = np.bincount(holder, weights=value * (self.total[gram] - value), minlength=len(members))
        self.total[gram] = 0
        return sums


def _weighted_n_grams(
    sentences: list[list[str]], image: np.ndarray, images: int
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray, int]]:
    found = []
    for grams in count_n_grams(sentences):
        held = np.unique(grams.gram * images + image[grams.sentence])
        frequency = np.bincount(held // images, minlength=grams.size)
        weight = grams.count * (math.log(images) - np.log(np.maximum(1, frequency)))[grams.gram]
        norms = np.sqrt(np.bincount(grams.sentence, weights=weight**2, minlength=len(sentences)))
        scale = np.where(norms > 0, norms, 1)[grams.sentence]
        offsets = np.searchsorted(grams.sentence, np.arange(len(sentences) + 1))
        found.append((offsets, grams.gram, weight / scale, grams.size))
    return found


def _unit(rows: np.ndarray) -> np.ndarray:
    if np.isnan(rows).any():
        raise InputError(f"caption baselines: {np.isnan(rows).sum()} values of the image rows are NaN")
    norms = np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
    unit: np.ndarray = rows / np.where(norms > 0, norms, 1)
    return unit
