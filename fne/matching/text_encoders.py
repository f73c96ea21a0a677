"""Maps from the words or the row of a caption to the joint space.

Every encoder is called as `encoder(words, embed_dim, settings)` with a table of word vectors, and returns a
module that maps padded words (captions, longest) and lengths (captions) to (captions, embed_dim). The module
is called as `module(words, lengths, step)`, where `step` is a `fne.core.distributed_layers.Step` while
training. A caption has at least one word, and padding is never read as a word, whatever its values are.
`settings` is the encoder's block of `train`, or None if it has none.

The encoders `rows…` are image heads for rows of captions: they read (captions, word_dim) in place of padded
words, and have no table.

On the CPU, a GRU in one direction is computed by `PrefixGru`, with the result of `torch.nn.GRU`.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from fne.core.device import is_gpu
from fne.core.distributed_layers import Step
from fne.core.products import Linear
from fne.matching.branches import MeanOfWords, mlp, mlp_bn_first
from fne.matching.image_heads import linear_bias
from fne.matching.prefix_gru import PrefixGru, prefixes
from fne.matching.settings import Branch, Gru
from fne.matching.text_cnn import text_cnn
from fne.matching.tfidf import tfidf


def gru(words: nn.Embedding, embed_dim: int, settings: Gru) -> nn.Module:
    """One gated recurrent layer, as in the paper."""
    reader = nn.GRU(words.embedding_dim, embed_dim)
    if settings.initial == "orthogonal":
        initialize_orthogonal(reader)
    return Recurrent(words, reader)


def lstm(words: nn.Embedding, embed_dim: int, settings: None) -> nn.Module:
    """One LSTM layer."""
    return Recurrent(words, nn.LSTM(words.embedding_dim, embed_dim))


def bigru(words: nn.Embedding, embed_dim: int, settings: None) -> nn.Module:
    """One bidirectional gated recurrent layer; each direction has half of the units."""
    return Recurrent(words, nn.GRU(words.embedding_dim, embed_dim // 2, bidirectional=True))


def bilstm(words: nn.Embedding, embed_dim: int, settings: None) -> nn.Module:
    """One bidirectional LSTM layer; each direction has half of the units."""
    return Recurrent(words, nn.LSTM(words.embedding_dim, embed_dim // 2, bidirectional=True))


def bow(words: nn.Embedding, embed_dim: int, settings: None) -> nn.Module:
    """The mean of the word vectors, and one linear map."""
    return BagOfWords(words, embed_dim)


@torch.no_grad()
def initialize_orthogonal(reader: nn.GRU) -> None:
    """Draw weights as the paper's published code and its ancestors do.

    The weights of each gate and of the candidate are drawn by themselves: those of the state are orthogonal,
    those of the input uniform within 0.1, or orthogonal too where they are square. Biases are zero.
    """
    for name, values in reader.named_parameters():
        if name.startswith("bias"):
            nn.init.zeros_(values)
            continue
        for part in values.chunk(3):  # reset gate, update gate, candidate
            nn.init.uniform_(part, -0.1, 0.1)
            if part.shape[0] == part.shape[1]:
                basis, triangle = torch.linalg.qr(part)
                # Without the signs, the choice of the algorithm would favor some directions.
                part.copy_(basis * triangle.diagonal().sign())


def of_mean_word(branch: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
    """Return an encoder: the mean of the word vectors, through a branch."""

    def encoder(words: nn.Embedding, embed_dim: int, settings: Branch) -> nn.Module:
        return MeanOfWords(words, branch(words.embedding_dim, embed_dim, settings))

    return _described(encoder, "The mean of the word vectors", branch)


def of_row(head: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
    """Return an encoder: a caption's row, through an image head."""

    def encoder(words: nn.Embedding, embed_dim: int, settings: Branch | None) -> nn.Module:
        return CaptionHead(head(words.embedding_dim, embed_dim, settings))

    return _described(encoder, "A caption's row", head)


def _described(
    encoder: Callable[..., nn.Module], what: str, branch: Callable[..., nn.Module]
) -> Callable[..., nn.Module]:
    """Give an encoder the description that the documentation of the settings prints."""
    own = (branch.__doc__ or "").partition("\n\n")[0]
    encoder.__doc__ = f"{what}, through {own[:1].lower()}{own[1:]}"
    return encoder


class CaptionHead(nn.Module):
    """A head over the rows of captions."""

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.head = head

    def forward(self, words: Tensor, lengths: Tensor, step: Step | None = None) -> Tensor:
        """Map rows (captions, features) to (captions, embed_dim)."""
        mapped: Tensor = self.head(words, step)
        return mapped


class Recurrent(nn.Module):
    """Word vectors and one recurrent layer; its last state, per direction, is the caption's vector."""

    def __init__(self, words: nn.Embedding, reader: nn.GRU | nn.LSTM) -> None:
        super().__init__()
        self.words = words
        self.reader = reader

    def forward(self, words: Tensor, lengths: Tensor, step: Step | None = None) -> Tensor:
        """Return the last states (captions, embed_dim)."""
        if not len(words):  # a process without a part of the batch; sequences cannot be packed then
            units = self.reader.hidden_size * (2 if self.reader.bidirectional else 1)
            return next(self.reader.parameters()).new_zeros((0, units)).requires_grad_()
        if isinstance(self.reader, nn.GRU) and not self.reader.bidirectional and not is_gpu(words.device):
            return last_states(self.words, self.reader, words, lengths)
        packed = pack_padded_sequence(words, lengths.cpu(), batch_first=True, enforce_sorted=False)
        return self.read_with_torch(packed)[packed.unsorted_indices]

    def read_with_torch(self, packed: PackedSequence) -> Tensor:
        """Return the last states (captions, embed_dim), in the order of `packed`, with torch's own layer."""
        # Without its permutation the packed sequence counts as sorted, and so do the states.
        _, last = self.reader(PackedSequence(self.words(packed.data), packed.batch_sizes))
        states: Tensor = last[0] if isinstance(last, tuple) else last  # (directions, captions, units)
        return states.transpose(0, 1).flatten(start_dim=1)


class BagOfWords(nn.Module):
    """The mean of a caption's word vectors, followed by a linear map."""

    def __init__(self, words: nn.Embedding, embed_dim: int) -> None:
        super().__init__()
        self.words = words
        self.map = Linear(words.embedding_dim, embed_dim)

    def forward(self, words: Tensor, lengths: Tensor, step: Step | None = None) -> Tensor:
        """Return the mapped means (captions, embed_dim)."""
        lengths = lengths.to(words.device)[:, None]
        inside = torch.arange(words.shape[1], device=words.device) < lengths  # (captions, longest)
        total = self.words(words).mul(inside[:, :, None]).sum(dim=1)
        mapped: Tensor = self.map(total / lengths)
        return mapped


def last_states(words: nn.Embedding, reader: nn.GRU, captions: Tensor, lengths: Tensor) -> Tensor:
    """Return the last state (captions, units) of each caption of padded words (captions, longest).

    The reader is one layer in one direction, with biases.
    """
    found = prefixes(captions.numpy(), lengths.numpy())
    distinct, positions = torch.unique(found.words, return_inverse=True)
    last: Tensor = PrefixGru.apply(
        words.weight[distinct],
        positions,
        found.depths,
        reader.weight_ih_l0,
        reader.bias_ih_l0,
        reader.weight_hh_l0,
        reader.bias_hh_l0,
    )
    return last


TEXT_ENCODERS: dict[str, Callable[..., nn.Module]] = {
    "bigru": bigru,
    "bilstm": bilstm,
    "bow": bow,
    "bow_mlp": of_mean_word(mlp),
    "bow_mlp_bn_first": of_mean_word(mlp_bn_first),
    "gru": gru,
    "lstm": lstm,
    "rows": of_row(linear_bias),
    "rows_mlp": of_row(mlp),
    "rows_mlp_bn_first": of_row(mlp_bn_first),
    "text_cnn": text_cnn,
    "tfidf": tfidf,
}
