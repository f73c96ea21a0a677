"""A text encoder without word order: the weighted sum of word vectors, mapped linearly.

    vector = map(sum(row[w][:-1] for w in caption) / norm(row[w][-1] for w in caption)) + bias

The last column of the word table holds the weights of the words, such as their inverse document frequencies.
The vectors in the other columns are already multiplied by them. The norm has order 2 for tf-idf weights and
order 1 for the mean of word vectors. `fne.matching.closed_form` computes the weights of this encoder.
"""

import torch
from torch import Tensor, nn

from fne.core.distributed_layers import Step
from fne.core.errors import InputError
from fne.core.products import Linear
from fne.core.settings import Section


class TfIdf(nn.Module):
    """The weighted sum of a caption's word vectors, divided by the norm of the weights, mapped linearly."""

    def __init__(self, words: nn.Embedding, embed_dim: int) -> None:
        super().__init__()
        self.words = words
        self.map = Linear(words.embedding_dim - 1, embed_dim)
        self.order: Tensor
        self.register_buffer("order", torch.full((1,), 2.0))

    def forward(self, words: Tensor, lengths: Tensor, step: Step | None = None) -> Tensor:
        """Map padded words (captions, longest) and lengths (captions) to (captions, embed_dim)."""
        inside = torch.arange(words.shape[1], device=words.device) < lengths.to(words.device)[:, None]
        rows = self.words(words).masked_fill(~inside[:, :, None], 0.0)  # (captions, longest, word_dim)
        total = rows[:, :, :-1].sum(dim=1)
        # The weights are constants: training moves the vectors only.
        norms = rows[:, :, -1].detach().abs().pow(self.order).sum(dim=1).pow(1 / self.order)
        vectors: Tensor = self.map(total / torch.where(norms > 0, norms, 1.0)[:, None])
        return vectors


def tfidf(words: nn.Embedding, embed_dim: int, settings: Section) -> nn.Module:
    """The tf-idf bag of words, and one linear map; its last column holds the weights of the words."""
    if words.embedding_dim < 2:
        raise InputError(
            f"train.word_dim is {words.embedding_dim}; text encoder 'tfidf' needs at least 2: the last "
            "column holds the weights of the words"
        )
    return TfIdf(words, embed_dim)
