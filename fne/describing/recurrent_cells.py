"""Recurrent cells of a decoder.

A cell has one interface for all kinds: `map_input(vectors)` maps inputs, `begin(hidden)` makes the first
state, and `step(state, mapped)` makes the next one. `mapped` (rows, gates * units) is the input after
its linear map, so that a decoder can add an image to it. A state is a tuple of tensors
(rows, units), the hidden state first. `read` makes all steps of packed sequences at once.

With a and b the maps of the input and of the hidden state h, and c the memory of an LSTM:

    lstm        i, f, o = sigmoid(a + b)    g = tanh(a + b)    c' = f c + i g    h' = o tanh(c')
    lstm_relu   the same with max(0, ·) for both tanh
    gru         r, z = sigmoid(a + b)       n = tanh(a + r b)  h' = n + z (h - n)
    rnn_relu    h' = max(0, a + b)
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from fne.core.products import linear, product

State = tuple[Tensor, ...]


@dataclass(frozen=True)
class Kind:
    """What distinguishes a cell: its gates, its state, and how both maps become the next state."""

    gates: int
    state_bias: bool  # whether the map of the hidden state has biases of its own
    begin: Callable[[Tensor], State]
    update: Callable[[Tensor, Tensor, State], State]  # from mapped input, mapped state and state


class Cell(nn.Module):
    """A recurrent cell of a kind of `CELLS`."""

    def __init__(
        self, kind: str, inputs: int, units: int, forget_bias: float = 1.0, rectified: bool = False
    ) -> None:
        """Make a cell; one without a forget gate ignores its bias. `rectified`: mapped inputs pass a ReLU."""
        super().__init__()
        self.kind = kind
        self.activate: Callable[[Tensor], Tensor] = torch.relu if rectified else _identity
        self.units = units
        gates = CELLS[kind].gates * units
        self.input_map = nn.Linear(inputs, gates)
        self.state_map = nn.Linear(units, gates, bias=CELLS[kind].state_bias)
        bound = units**-0.5
        for parameter in self.parameters():
            # Uniform numbers are the same on all CPUs; normal ones are not.
            nn.init.uniform_(parameter, -bound, bound) if parameter.dim() > 1 else nn.init.zeros_(parameter)
        if kind in _LSTMS:
            nn.init.constant_(self.input_map.bias[units : 2 * units], forget_bias)

    @property
    def width(self) -> int:
        """The width of a mapped input."""
        return self.input_map.out_features

    def map_input(self, vectors: Tensor) -> Tensor:
        """Map inputs (rows, inputs) to (rows, width)."""
        return self.activate(self.input_map(vectors))

    def begin(self, hidden: Tensor) -> State:
        """Return the state with this hidden state (rows, units) and empty memory."""
        return CELLS[self.kind].begin(hidden)

    def step(self, state: State, mapped: Tensor) -> State:
        """Return the next state, given the mapped input (rows, width)."""
        return self.update(mapped, self.state_map(state[0]), state)

    def update(self, of_input: Tensor, of_hidden: Tensor, state: State) -> State:
        """Return the next state, given the maps of the input and of the hidden state (rows, width)."""
        return CELLS[self.kind].update(of_input, of_hidden, state)

    def read(self, state: State, mapped: Tensor, sizes: Sequence[int]) -> Tensor:
        """Return the hidden states (positions, units) of packed sequences.

        Args:
            state: the state before the first step, one row per sequence.
            mapped: the mapped inputs of all steps, one step after the other (positions, width).
            sizes: the number of rows of each step, never rising.
        """
        if self.kind in _LSTMS and not mapped.is_cuda:
            hidden: Tensor = PackedLstm.apply(
                mapped, *state, self.state_map.weight, tuple(sizes), self.kind == "lstm_relu"
            )
            return hidden
        return self.read_step_by_step(state, mapped, sizes)

    def read_step_by_step(self, state: State, mapped: Tensor, sizes: Sequence[int]) -> Tensor:
        """Do the same as `read`, one call of `step` after the other."""
        hidden = []
        for step in steps_of(sizes):
            size = step.stop - step.start
            state = self.step(tuple(each[:size] for each in state), mapped[step])
            hidden.append(state[0])
        return torch.cat(hidden)


def steps_of(sizes: Sequence[int]) -> list[slice]:
    """Return the positions of each step of packed sequences."""
    starts = [0]
    for size in sizes:
        starts.append(starts[-1] + size)
    return [slice(start, stop) for start, stop in itertools.pairwise(starts)]


class PackedLstm(torch.autograd.Function):
    """All steps of an LSTM over packed sequences, with one product for the gradient of its weights."""

    @staticmethod
    def forward(
        ctx: Any,
        mapped: Tensor,
        hidden: Tensor,
        memory: Tensor,
        weight: Tensor,
        sizes: tuple[int, ...],
        rectified: bool,
    ) -> Tensor:
        """Return the hidden states (positions, units)."""
        units = weight.shape[1]
        gates = torch.empty_like(mapped)
        before = mapped.new_empty(len(mapped), units)  # hidden states before each position
        memories = mapped.new_empty(len(mapped), units)  # before each position
        active = mapped.new_empty(len(mapped), units)  # memories after it, through the activation
        after = mapped.new_empty(len(mapped), units)
        activate = torch.relu_ if rectified else torch.tanh_
        for step in steps_of(sizes):
            size = step.stop - step.start
            before[step], memories[step] = hidden[:size], memory[:size]
            torch.add(mapped[step], linear(before[step], weight), out=gates[step])
            gates[step, : 3 * units].sigmoid_()
            activate(gates[step, 3 * units :])
            taken, forget, shown, new = gates[step].chunk(4, dim=1)
            memory = torch.addcmul(forget * memories[step], taken, new)
            active[step] = memory
            activate(active[step])
            hidden = torch.mul(shown, active[step], out=after[step])
        ctx.save_for_backward(weight, gates, before, memories, active)
        ctx.sizes, ctx.rectified = sizes, rectified
        return after

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_after: Tensor) -> tuple[Tensor | None, ...]:
        """Go back step by step for the gradients of the gates; all others follow from these."""
        weight, gates, before, memories, active = ctx.saved_tensors
        of_gates = torch.empty_like(gates)
        slope = _relu_slope if ctx.rectified else torch.ops.aten.tanh_backward
        of_hidden, of_memory = of_after[:0], of_after[:0]
        for step in reversed(steps_of(ctx.sizes)):
            going_on = len(of_hidden)  # sequences that have a next step
            taken, forget, shown, new = gates[step].chunk(4, dim=1)
            of_taken, of_forget, of_shown, of_new = of_gates[step].chunk(4, dim=1)
            here = of_after[step].clone()
            here[:going_on] += of_hidden
            of_shown[:] = torch.ops.aten.sigmoid_backward(here * active[step], shown)
            inner = slope(here * shown, active[step])
            inner[:going_on] += of_memory
            of_taken[:] = torch.ops.aten.sigmoid_backward(inner * new, taken)
            of_forget[:] = torch.ops.aten.sigmoid_backward(inner * memories[step], forget)
            of_new[:] = slope(inner * taken, new)
            of_memory = inner * forget
            of_hidden = product(of_gates[step], weight)
        return of_gates, of_hidden, of_memory, product(of_gates.T, before), None, None


def _identity(values: Tensor) -> Tensor:
    return values


def _relu_slope(gradient: Tensor, activated: Tensor) -> Tensor:
    return gradient * (activated > 0)


def _with_memory(hidden: Tensor) -> State:
    return hidden, torch.zeros_like(hidden)


def _alone(hidden: Tensor) -> State:
    return (hidden,)


def _lstm(activation: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor, State], State]:
    def update(of_input: Tensor, of_hidden: Tensor, state: State) -> State:
        sums = of_input + of_hidden
        units = sums.shape[1] // 4
        taken, forget, shown = torch.sigmoid(sums[:, : 3 * units]).chunk(3, dim=1)
        memory = forget * state[1] + taken * activation(sums[:, 3 * units :])
        return shown * activation(memory), memory

    return update


def _gru(of_input: Tensor, of_hidden: Tensor, state: State) -> State:
    units = of_input.shape[1] // 3
    gates = torch.sigmoid(of_input[:, : 2 * units] + of_hidden[:, : 2 * units])
    reset, keep = gates.chunk(2, dim=1)
    new = torch.tanh(of_input[:, 2 * units :] + reset * of_hidden[:, 2 * units :])
    return (torch.lerp(new, state[0], keep),)


def _rnn_relu(of_input: Tensor, of_hidden: Tensor, state: State) -> State:
    return (torch.relu(of_input + of_hidden),)


CELLS: dict[str, Kind] = {
    "gru": Kind(3, True, _alone, _gru),
    "lstm": Kind(4, False, _with_memory, _lstm(torch.tanh)),
    "lstm_relu": Kind(4, False, _with_memory, _lstm(torch.relu)),
    "rnn_relu": Kind(1, False, _alone, _rnn_relu),
}
_LSTMS = {"lstm", "lstm_relu"}
