"""The table of word vectors that a text encoder starts from: drawn, or pretrained."""

import numpy as np
import torch
from torch import nn

from fne.core.errors import InputError


def word_table(
    vocabulary_size: int, word_dim: int, vectors: np.ndarray | None = None, fixed: bool = False
) -> nn.Embedding:
    """Return a table of word vectors (vocabulary_size, word_dim).

    Numbers are drawn from torch's global generator, unless vectors are given. Fixed vectors need no
    gradient and must not be passed to an optimizer.

    Args:
        vocabulary_size: the number of words.
        word_dim: the length of each vector.
        vectors: pretrained vectors (vocabulary_size, word_dim).
        fixed: whether the vectors stay as they are while training.

    Raises:
        InputError: if `fixed` has no vectors, or the vectors have other dimensions.
    """
    if vectors is None:
        if fixed:
            raise InputError(
                "train.words is 'fixed', but tokenize.vectors names no vectors; name a file of word vectors, "
                "or use -S train.words=learned"
            )
        # Embedding by itself draws normal numbers, which differ between generations of CPUs.
        weight = torch.empty(vocabulary_size, word_dim).uniform_(-0.1, 0.1)
    elif vectors.shape[1] != word_dim:
        raise InputError(
            f"train.word_dim is {word_dim}, but tokenize.vectors has {vectors.shape[1]} dimensions; "
            f"use -S train.word_dim={vectors.shape[1]}"
        )
    elif len(vectors) != vocabulary_size:
        raise InputError(
            f"there are vectors of {len(vectors)} words, but {vocabulary_size} words in the vocabulary; "
            "run `dvc repro tokenize`"
        )
    else:
        weight = torch.tensor(vectors, dtype=torch.float32)
    table: nn.Embedding = nn.Embedding.from_pretrained(weight, freeze=fixed)  # type: ignore[no-untyped-call]
    return table
