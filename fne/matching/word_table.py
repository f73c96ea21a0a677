"""What text encoders read: padded captions, and the table of word vectors, drawn or pretrained."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from fne.core.errors import InputError


def pad_captions(captions: Sequence[np.ndarray]) -> tuple[Tensor, Tensor]:
    """Return padded words (captions, longest) and lengths (captions), given the words of each caption.

    Example:
        >>> pad_captions([np.array([4, 2, 9]), np.array([7])])
        (tensor([[4, 2, 9],
                [7, 0, 0]]), tensor([3, 1]))
    """
    words = torch.zeros((len(captions), max(map(len, captions), default=1)), dtype=torch.int64)
    for padded, row in zip(words, captions, strict=True):
        padded[: len(row)] = torch.from_numpy(row.astype(np.int64))
    return words, torch.tensor([len(row) for row in captions], dtype=torch.int64)


def word_table(
    vocabulary_size: int, word_dim: int, vectors: np.ndarray | None = None, fixed: bool = False
) -> nn.Embedding:
    """Return a table of word vectors (vocabulary_size, word_dim), drawn by torch's global generator or given.

    Fixed vectors need no gradient and must not be passed to an optimizer.
    """
    if vectors is None:
        # Embedding by itself draws normal numbers, which differ between generations of CPUs.
        weight = torch.empty(vocabulary_size, word_dim).uniform_(-0.1, 0.1)
    elif len(vectors) != vocabulary_size:
        raise InputError(
            f"there are vectors of {len(vectors)} words, but {vocabulary_size} words in the vocabulary; "
            "run `dvc repro tokenize`"
        )
    else:
        weight = torch.tensor(vectors, dtype=torch.float32)
    table: nn.Embedding = nn.Embedding.from_pretrained(weight, freeze=fixed)  # type: ignore[no-untyped-call]
    return table
