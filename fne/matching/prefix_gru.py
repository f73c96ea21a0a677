"""A gated recurrent layer on the CPU: the result of `torch.nn.GRU`, in fewer and larger matrix products.

The state after some words depends on these words alone. Captions often begin alike ("a man in a"), so each
beginning that occurs in a batch is read once: of 128 captions of Flickr8k, the first words are 20 distinct
ones, and 13 % of the products for the states are saved. Each distinct word is mapped once too: a third of
the words are distinct. The gradient of each weight is one product over the whole batch.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fne.core.products import linear, product


@dataclass(frozen=True)
class Depth:
    """The distinct beginnings of one length in a batch, in alphabetical order."""

    nodes: slice  # where they stand among the beginnings of all lengths
    states: slice  # where those that go on stand among those of all lengths
    going_on: Tensor | None  # the nodes that go on, by their number at this depth; None for all
    parents: Tensor | None  # per node, its beginning, by number among those that go on; None if each has one
    ends: Tensor  # the nodes where captions end, by their number at this depth
    captions: Tensor  # the captions that end there


@dataclass(frozen=True)
class Prefixes:
    """The distinct beginnings of captions, and the last word of each one."""

    words: Tensor  # (beginnings), those of length one first
    depths: list[Depth]


def prefixes(words: np.ndarray, lengths: np.ndarray) -> Prefixes:
    """Return the beginnings of padded captions (captions, longest); the padding may have any values.

    Example:
        >>> found = prefixes(np.array([[4, 2, 9], [4, 7, 0], [4, 2, 0]]), np.array([3, 2, 2]))
        >>> found.words
        tensor([4, 2, 7, 9])
        >>> [(depth.nodes.stop, depth.ends.tolist(), depth.captions.tolist()) for depth in found.depths]
        [(1, [], []), (3, [0, 1], [2, 1]), (4, [0], [0])]
    """
    longest = int(lengths.max())
    inside = np.arange(longest) < lengths[:, None]
    padded = np.where(inside, words[:, :longest], -1)
    order = np.lexsort(padded.T[::-1])
    padded, inside = padded[order], inside[order]
    # A caption has a beginning of its own from the first word on that differs from its neighbor's.
    differs = np.ones_like(inside)
    differs[1:] = np.logical_or.accumulate(padded[1:] != padded[:-1], axis=1)
    new = differs & inside
    # The number of each caption's beginning at each depth, and of those that go on.
    numbers = np.cumsum(new, axis=0) - 1
    stops = np.cumsum(new.sum(axis=0))
    depths, states = [], 0
    for depth, stop in enumerate(stops):
        size = int(new[:, depth].sum())
        goes_on = np.zeros(size, dtype=bool)
        if depth + 1 < longest:
            goes_on[numbers[inside[:, depth + 1], depth]] = True
        parents = None
        if depth:
            before = numbers[new[:, depth], depth - 1]  # rises
            compact = np.cumsum(np.diff(before, prepend=-1) > 0) - 1
            parents = None if compact[-1] + 1 == size else torch.from_numpy(compact)
        ending = lengths[order] == depth + 1
        count = int(goes_on.sum())
        depths.append(
            Depth(
                slice(int(stop) - size, int(stop)),
                slice(states, states + count),
                None if count == size else torch.from_numpy(np.flatnonzero(goes_on)),
                parents,
                torch.from_numpy(numbers[ending, depth]),
                torch.from_numpy(order[ending]),
            )
        )
        states += count
    return Prefixes(torch.from_numpy(padded.T[new.T]), depths)


class PrefixGru(torch.autograd.Function):
    """The last states of a gated recurrent layer that reads captions.

    With the reset gate r, the update gate z, the candidate state n, the previous state h, and the
    maps a of the input and b of the state, each in three parts for r, z and n:

        r = sigmoid(a_r + b_r)    z = sigmoid(a_z + b_z)    n = tanh(a_n + r b_n)    state = n + z (h - n)
    """

    @staticmethod
    def forward(
        ctx: Any,
        vectors: Tensor,
        positions: Tensor,
        depths: list[Depth],
        input_weight: Tensor,
        input_bias: Tensor,
        state_weight: Tensor,
        state_bias: Tensor,
    ) -> Tensor:
        """Return the last states (captions, units).

        Args:
            vectors: those of the distinct words (distinct words, word_dim).
            positions: where the vector of the last word of each beginning is (beginnings).
        """
        units = state_weight.shape[1]
        # First the maps of the input; each step turns its part into r, z and n.
        gates = linear(vectors, input_weight, input_bias)[positions]  # (beginnings, 3 units)
        states = vectors.new_empty(depths[-1].states.stop, units)  # those that go on
        before = vectors.new_zeros(len(positions), units)
        candidates = vectors.new_empty(len(positions), units)  # b_n
        last = vectors.new_empty(sum(len(depth.captions) for depth in depths), units)
        kept = states[:0]
        for number, depth in enumerate(depths):
            here = depth.nodes
            mapped = linear(kept, state_weight, state_bias) if number else state_bias.expand(1, -1)
            if depth.parents is not None:
                kept, mapped = kept[depth.parents], mapped[depth.parents]
            if number:
                before[here] = kept
            candidates[here] = mapped[:, 2 * units :]
            gates[here, : 2 * units].add_(mapped[:, : 2 * units]).sigmoid_()
            reset, update, new = gates[here].chunk(3, dim=1)
            new.addcmul_(reset, candidates[here]).tanh_()
            state = torch.lerp(new, before[here], update)
            last[depth.captions] = state[depth.ends]
            kept = states[depth.states]
            if depth.going_on is None:
                kept.copy_(state)
            else:
                torch.index_select(state, 0, depth.going_on, out=kept)
        ctx.save_for_backward(
            vectors, positions, input_weight, state_weight, gates, states, before, candidates
        )
        ctx.depths = depths
        return last

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, last: Tensor) -> tuple[Tensor | None, ...]:
        """Compute the gradients of a and b step by step, then all others from these at once."""
        vectors, positions, input_weight, state_weight, gates, states, before, candidates = ctx.saved_tensors
        units = state_weight.shape[1]
        of_inputs = torch.empty_like(gates)  # gradients of a
        of_states = gates.new_empty(len(states), 3 * units)  # gradients of b, per state that goes on
        of_kept = states[:0]
        first = gates.new_empty(0)  # gradient of b at the first words, whose state is zero
        for number, depth in reversed(list(enumerate(ctx.depths))):
            here = depth.nodes
            if depth.going_on is None:
                of_state = of_kept
            else:
                of_state = last.new_zeros(here.stop - here.start, units)
                of_state[depth.going_on] = of_kept
            of_state.index_add_(0, depth.ends, last[depth.captions])
            reset, update, new = gates[here].chunk(3, dim=1)
            of_reset, of_update, of_new = of_inputs[here].chunk(3, dim=1)
            torch.addcmul(of_state, of_state, update, value=-1, out=of_new)
            torch.ops.aten.tanh_backward(of_new, new, grad_input=of_new)
            torch.sub(before[here], new, out=of_update).mul_(of_state)
            torch.ops.aten.sigmoid_backward(of_update, update, grad_input=of_update)
            torch.mul(of_new, candidates[here], out=of_reset)
            torch.ops.aten.sigmoid_backward(of_reset, reset, grad_input=of_reset)
            place = ctx.depths[number - 1].states if number else slice(0, 0)
            own = depth.parents is None and number > 0
            of_mapped = of_states[place] if own else torch.empty_like(of_inputs[here])
            of_mapped[:, : 2 * units] = of_inputs[here, : 2 * units]
            torch.mul(of_new, reset, out=of_mapped[:, 2 * units :])
            if not number:
                first = of_mapped.sum(dim=0)
                continue
            of_kept = of_state.mul_(update)
            if depth.parents is not None:
                of_states[place].zero_().index_add_(0, depth.parents, of_mapped)
                of_kept = of_kept.new_zeros(place.stop - place.start, units)
                of_kept.index_add_(0, depth.parents, of_state)
            of_kept += product(of_states[place], state_weight)
        of_words = gates.new_zeros(len(vectors), gates.shape[1]).index_add_(0, positions, of_inputs)
        return (
            product(of_words, input_weight),
            None,
            None,
            product(of_words.T, vectors),
            of_words.sum(dim=0),
            product(of_states.T, states),
            of_states.sum(dim=0) + first,
        )
