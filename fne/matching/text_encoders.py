"""Maps from the words of a caption to the joint space.

Every encoder is called as `encoder(vocabulary_size, word_dim, embed_dim)` and returns a
module that maps padded words (captions, longest) and lengths (captions) to (captions,
embed_dim). A caption has at least one word. What stands in the padding does not matter.
"""

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from fne.core.errors import InputError
from fne.matching.gru import last_states


class Recurrent(nn.Module):
    """Word vectors read by one recurrent layer; its last state stands for the caption.

    A layer that reads in both directions has a last state at either end, and they stand side by side.
    """

    def __init__(self, words: nn.Embedding, reader: nn.GRU | nn.LSTM) -> None:
        super().__init__()
        self.words = words
        self.reader = reader

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        """Read captions word by word."""
        packed = pack_padded_sequence(words, lengths.cpu(), batch_first=True, enforce_sorted=False)
        if isinstance(self.reader, nn.GRU) and not self.reader.bidirectional and not words.is_cuda:
            states = last_states(self.words, self.reader, packed)
        else:
            states = self.read_with_torch(packed)
        return states[packed.unsorted_indices]

    def read_with_torch(self, packed: PackedSequence) -> Tensor:
        """Return the last states (captions, embed_dim), in the order of `packed`, by torch's own layer."""
        # Without its orders the packed sequence counts as sorted, and so do the states.
        _, last = self.reader(PackedSequence(self.words(packed.data), packed.batch_sizes))
        states: Tensor = last[0] if isinstance(last, tuple) else last  # (directions, captions, units)
        return states.transpose(0, 1).flatten(start_dim=1)


class BagOfWords(nn.Module):
    """The mean of a caption's word vectors, mapped linearly."""

    def __init__(self, words: nn.Embedding, embed_dim: int) -> None:
        super().__init__()
        self.words = words
        self.map = nn.Linear(words.embedding_dim, embed_dim)

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        """Average captions over their words."""
        lengths = lengths.to(words.device)[:, None]
        inside = torch.arange(words.shape[1], device=words.device) < lengths  # (captions, longest)
        total = self.words(words).mul(inside[:, :, None]).sum(dim=1)
        mapped: Tensor = self.map(total / lengths)
        return mapped


def gru(vocabulary_size: int, word_dim: int, embed_dim: int) -> nn.Module:
    """One gated recurrent layer, as the paper's."""
    return Recurrent(_words(vocabulary_size, word_dim), nn.GRU(word_dim, embed_dim))


def lstm(vocabulary_size: int, word_dim: int, embed_dim: int) -> nn.Module:
    """One layer of long short-term memory."""
    return Recurrent(_words(vocabulary_size, word_dim), nn.LSTM(word_dim, embed_dim))


def bigru(vocabulary_size: int, word_dim: int, embed_dim: int) -> nn.Module:
    """A gated recurrent layer in both directions, each with half of the units."""
    half = _half("bigru", embed_dim)
    return Recurrent(_words(vocabulary_size, word_dim), nn.GRU(word_dim, half, bidirectional=True))


def bilstm(vocabulary_size: int, word_dim: int, embed_dim: int) -> nn.Module:
    """A layer of long short-term memory in both directions, each with half of the units."""
    half = _half("bilstm", embed_dim)
    return Recurrent(_words(vocabulary_size, word_dim), nn.LSTM(word_dim, half, bidirectional=True))


def bow(vocabulary_size: int, word_dim: int, embed_dim: int) -> nn.Module:
    """The mean of the word vectors, in any order, and one linear map."""
    return BagOfWords(_words(vocabulary_size, word_dim), embed_dim)


def _words(vocabulary_size: int, word_dim: int) -> nn.Embedding:
    # Embedding by itself draws normal numbers, which differ between generations of CPUs.
    weight = torch.empty(vocabulary_size, word_dim).uniform_(-0.1, 0.1)
    words: nn.Embedding = nn.Embedding.from_pretrained(weight, freeze=False)  # type: ignore[no-untyped-call]
    return words


def _half(name: str, embed_dim: int) -> int:
    if embed_dim % 2:
        raise InputError(
            f"train.embed_dim is {embed_dim}; text encoder '{name}' needs an even number, "
            "half of it for each direction"
        )
    return embed_dim // 2


TEXT_ENCODERS = {"bigru": bigru, "bilstm": bilstm, "bow": bow, "gru": gru, "lstm": lstm}
BIDIRECTIONAL = {"bigru", "bilstm"}
