"""Maps from the words of a caption to the joint space.

Every encoder is called as `encoder(words, embed_dim, settings)` with a table of word vectors, and returns a
module that maps padded words (captions, longest) and lengths (captions) to (captions, embed_dim). The module
is called as `module(words, lengths, step)`, where `step` is a `fne.core.distributed_layers.Step` while
training. A caption has at least one word, and padding is never read as a word, whatever its values are.
`settings`
is the encoder's block of `train`, or None if it has none.

On the CPU, a GRU in one direction is computed by `PackedGru` instead of `torch.nn.GRU`. It
gives the same result in fewer and larger matrix products.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from fne.core.device import is_gpu
from fne.core.distributed_layers import Step
from fne.core.errors import InputError
from fne.matching.branches import MeanOfWords, mlp, mlp_bn_first
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
    units = _units_per_direction("bigru", embed_dim)
    return Recurrent(words, nn.GRU(words.embedding_dim, units, bidirectional=True))


def bilstm(words: nn.Embedding, embed_dim: int, settings: None) -> nn.Module:
    """One bidirectional LSTM layer; each direction has half of the units."""
    units = _units_per_direction("bilstm", embed_dim)
    return Recurrent(words, nn.LSTM(words.embedding_dim, units, bidirectional=True))


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


def bow_mlp(words: nn.Embedding, embed_dim: int, settings: Branch) -> nn.Module:
    """The mean of the word vectors, through a branch with batch normalization after the last layer."""
    return MeanOfWords(words, mlp(words.embedding_dim, embed_dim, settings))


def bow_mlp_bn_first(words: nn.Embedding, embed_dim: int, settings: Branch) -> nn.Module:
    """The mean of the word vectors, through a branch with batch normalization after the hidden layers."""
    return MeanOfWords(words, mlp_bn_first(words.embedding_dim, embed_dim, settings))


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
        packed = pack_padded_sequence(words, lengths.cpu(), batch_first=True, enforce_sorted=False)
        if isinstance(self.reader, nn.GRU) and not self.reader.bidirectional and not is_gpu(words.device):
            states = last_states(self.words, self.reader, packed)
        else:
            states = self.read_with_torch(packed)
        return states[packed.unsorted_indices]

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
        self.map = nn.Linear(words.embedding_dim, embed_dim)

    def forward(self, words: Tensor, lengths: Tensor, step: Step | None = None) -> Tensor:
        """Return the mapped means (captions, embed_dim)."""
        lengths = lengths.to(words.device)[:, None]
        inside = torch.arange(words.shape[1], device=words.device) < lengths  # (captions, longest)
        total = self.words(words).mul(inside[:, :, None]).sum(dim=1)
        mapped: Tensor = self.map(total / lengths)
        return mapped


def last_states(words: nn.Embedding, reader: nn.GRU, packed: PackedSequence) -> Tensor:
    """Return the last state of each caption (captions, units), in the order of the `packed` word numbers.

    The reader is one layer in one direction, with biases.
    """
    distinct, positions = torch.unique(packed.data, return_inverse=True)
    last: Tensor = PackedGru.apply(
        words(distinct),
        positions,
        packed.batch_sizes.tolist(),
        reader.weight_ih_l0,
        reader.bias_ih_l0,
        reader.weight_hh_l0,
        reader.bias_hh_l0,
    )
    return last


class PackedGru(torch.autograd.Function):
    """A gated recurrent layer on the CPU: the result of `torch.nn.GRU`, in large matrix products.

    The words are packed: first the first words of all captions of a batch, then all second words, and so on,
    with captions in order of decreasing length. `vectors` (distinct words, word_dim) holds each distinct word
    once, so it is mapped once; of the words of 128 captions, a third are distinct. `positions` (words) says
    where the vector of each word is. The gradient of each weight is one product over the whole batch.

    With the reset gate r, the update gate z, the candidate state n, the previous state h, and the
    maps a of the input and b of the state, each in three parts for r, z and n:

        r = sigmoid(a_r + b_r)    z = sigmoid(a_z + b_z)    n = tanh(a_n + r b_n)    state = n + z (h - n)
    """

    @staticmethod
    def forward(
        ctx: Any,
        vectors: Tensor,
        positions: Tensor,
        sizes: list[int],
        input_weight: Tensor,
        input_bias: Tensor,
        state_weight: Tensor,
        state_bias: Tensor,
    ) -> Tensor:
        """Return the last states; step t reads the `sizes[t]` captions that have more than t words."""
        units = state_weight.shape[1]
        # First the maps of the input; each step turns its part into r, z and n.
        gates = torch.addmm(input_bias, vectors, input_weight.T)[positions]  # (words, 3 units)
        before = vectors.new_zeros(len(positions), units)
        candidates = vectors.new_empty(len(positions), units)  # b_n
        last = vectors.new_empty(sizes[0], units)
        for step, following in zip(_steps(sizes), [*sizes[1:], 0], strict=True):
            mapped = (
                torch.addmm(state_bias, before[step], state_weight.T)
                if step.start
                else state_bias.expand(step.stop, -1)  # the initial state is zero
            )
            candidates[step] = mapped[:, 2 * units :]
            gates[step, : 2 * units].add_(mapped[:, : 2 * units]).sigmoid_()
            reset, update, new = gates[step].chunk(3, dim=1)
            new.addcmul_(reset, candidates[step]).tanh_()
            state = torch.lerp(new, before[step], update)
            before[step.stop : step.stop + following] = state[:following]
            last[following : len(state)] = state[following:]
        ctx.save_for_backward(vectors, positions, input_weight, state_weight, gates, before, candidates)
        ctx.sizes = sizes
        return last

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, last: Tensor) -> tuple[Tensor | None, ...]:
        """Compute the gradients of a and b step by step, then all others from these at once."""
        vectors, positions, input_weight, state_weight, gates, before, candidates = ctx.saved_tensors
        of_inputs, of_states = torch.empty_like(gates), torch.empty_like(gates)  # gradients of a and b
        of_state = last[:0]
        for step in reversed(_steps(ctx.sizes)):
            size = step.stop - step.start
            # Captions that end at this step join those that are longer.
            of_state = torch.cat([of_state, last[len(of_state) : size]])
            reset, update, new = gates[step].chunk(3, dim=1)
            of_reset, of_update, of_new = of_inputs[step].chunk(3, dim=1)
            of_new[:] = torch.ops.aten.tanh_backward(of_state * (1 - update), new)
            of_update[:] = torch.ops.aten.sigmoid_backward(of_state * (before[step] - new), update)
            of_reset[:] = torch.ops.aten.sigmoid_backward(of_new * candidates[step], reset)
            of_states[step] = of_inputs[step]
            of_states[step].chunk(3, dim=1)[2].mul_(reset)
            if step.start:
                of_state = torch.addmm(of_state * update, of_states[step], state_weight)
        of_words = gates.new_zeros(len(vectors), gates.shape[1]).index_add_(0, positions, of_inputs)
        later = slice(ctx.sizes[0], None)  # the state before the first words is zero
        return (
            of_words @ input_weight,
            None,
            None,
            of_words.T @ vectors,
            of_words.sum(dim=0),
            of_states[later].T @ before[later],
            of_states.sum(dim=0),
        )


def _units_per_direction(name: str, embed_dim: int) -> int:
    if embed_dim % 2:
        raise InputError(
            f"train.embed_dim is {embed_dim}; text encoder '{name}' needs an even number, "
            "because each direction gets half of it"
        )
    return embed_dim // 2


def _steps(sizes: list[int]) -> list[slice]:
    """Return the slice of the packed words of each step."""
    starts = [sum(sizes[:step]) for step in range(len(sizes))]
    return [slice(start, start + size) for start, size in zip(starts, sizes, strict=True)]


TEXT_ENCODERS: dict[str, Callable[..., nn.Module]] = {
    "bigru": bigru,
    "bilstm": bilstm,
    "bow": bow,
    "bow_mlp": bow_mlp,
    "bow_mlp_bn_first": bow_mlp_bn_first,
    "gru": gru,
    "lstm": lstm,
    "text_cnn": text_cnn,
    "tfidf": tfidf,
}
