"""A gated recurrent layer on the CPU: what `torch.nn.GRU` computes, in large matrix products.

The layer reads packed words: the first words of all captions of a batch, then all second
words, and so on, captions in falling length. A word that comes again is mapped only
once (of the words of 128 captions, a third are different), and the gradient of each weight is
one product over the whole batch instead of one per step.

With r, z and n the reset gate, the update gate and the new state, h the state before, and
a and b the maps of the input and of the state (each in three parts, of r, z and n):

    r = sigmoid(a_r + b_r)    z = sigmoid(a_z + b_z)    n = tanh(a_n + r b_n)    state = n + z (h - n)
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.utils.rnn import PackedSequence


def last_states(words: nn.Embedding, reader: nn.GRU, packed: PackedSequence) -> Tensor:
    """Return the last state of each caption (captions, units), in the order of `packed`.

    Args:
        words: the vectors of words.
        reader: one layer in one direction, with biases; its weights are used.
        packed: the numbers of the words.
    """
    different, positions = torch.unique(packed.data, return_inverse=True)
    last: Tensor = PackedGru.apply(
        words(different),
        positions,
        packed.batch_sizes.tolist(),
        reader.weight_ih_l0,
        reader.bias_ih_l0,
        reader.weight_hh_l0,
        reader.bias_hh_l0,
    )
    return last


class PackedGru(torch.autograd.Function):
    """Last states from word vectors (different words, word_dim) and each word's position in them (words)."""

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
        """Read step by step; step t is that of the `sizes[t]` captions that are long enough."""
        units = state_weight.shape[1]
        # The map of the input at first; each step turns its part into r, z and n.
        gates = torch.addmm(input_bias, vectors, input_weight.T)[positions]  # (words, 3 units)
        before = vectors.new_zeros(len(positions), units)
        candidates = vectors.new_empty(len(positions), units)  # b_n
        last = vectors.new_empty(sizes[0], units)
        for step, following in zip(_steps(sizes), [*sizes[1:], 0], strict=True):
            mapped = (
                torch.addmm(state_bias, before[step], state_weight.T)
                if step.start
                else state_bias.expand(step.stop, -1)  # the state before the first word is zero
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
        """Go back step by step for the gradients of a and b, then find all others from these at once."""
        vectors, positions, input_weight, state_weight, gates, before, candidates = ctx.saved_tensors
        of_inputs, of_states = torch.empty_like(gates), torch.empty_like(gates)  # of a and of b
        of_state = last[:0]
        for step in reversed(_steps(ctx.sizes)):
            size = step.stop - step.start
            # Captions that end here join those that go on.
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
        later = slice(ctx.sizes[0], None)  # at the first words the state before is zero
        return (
            of_words @ input_weight,
            None,
            None,
            of_words.T @ vectors,
            of_words.sum(dim=0),
            of_states[later].T @ before[later],
            of_states.sum(dim=0),
        )


def _steps(sizes: list[int]) -> list[slice]:
    """Return where the words of each step are."""
    starts = [sum(sizes[:step]) for step in range(len(sizes))]
    return [slice(start, start + size) for start, size in zip(starts, sizes, strict=True)]
