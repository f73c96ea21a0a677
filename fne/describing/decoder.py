"""A decoder: from the condition of an image to sequences of words or tags.

Outputs have numbers from 0; START is the input after the last one. `hidden_states` reads true sequences, and
`begin`, `advance` and `select` are what `fne.describing.beam.search` needs to write new ones.
Before training all outputs have their start biases only, because the output weights start at zero.

The condition of an image (concept probabilities, a hidden layer, or its embedding) passes one linear map. An
injection says how wide the map is and where its result enters. It is called as `injection(mapped)` with the
mapped condition (images, width) and returns `Entries`.
"""

import copy
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding
from torch.nn.functional import pad as zero_pad
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from fne.core.device import is_gpu
from fne.core.products import linear
from fne.describing.losses import word_losses
from fne.describing.recurrent_cells import Cell, State

ALIGNED = 8  # numbers of float32 in a vector register


class Entries(NamedTuple):
    """What enters a decoder, by place; None where nothing enters."""

    hidden: Tensor | None = None  # the first hidden state (images, units)
    word: Tensor | None = None  # read before START as if it were a word (images, word_dim)
    first: Tensor | None = None  # added to the mapped input of START (images, cell width)
    every: Tensor | None = None  # added to the mapped input of every step (images, cell width)
    output: Tensor | None = None  # added to the hidden state before the output (images, units)


class Widths(NamedTuple):
    """The widths of a decoder that a condition may be mapped to."""

    units: int
    word_dim: int
    mapped: int  # numbers in the cell's mapped input


@dataclass(frozen=True)
class Injection:
    """The width of the map of a condition, and the place where it enters."""

    width: Callable[[Widths], int]
    enter: Callable[[Tensor], Entries]


class Dropout(NamedTuple):
    """Factors for words and for hidden states before the output: 0, or 1 by the fraction that is kept."""

    words: Tensor  # (captions, longest, word_dim)
    states: Tensor  # (captions, longest, units)


class Running(NamedTuple):
    """Sequences that are being written, one row each."""

    cell: State
    every: Tensor | None  # (rows, cell width)
    output: Tensor | None  # (rows, units)


class Decoder(nn.Module):
    """Word vectors, a cell, the map of the condition and the map to outputs."""

    def __init__(
        self,
        outputs: int,
        condition: int,
        word_dim: int,
        units: int,
        *,
        cell: str,
        inject: str,
        forget_bias: float = 1.0,
        rectified: bool = False,
    ) -> None:
        """Make a decoder of so many outputs, START not included, for conditions of a width.

        `cell` is a key of `fne.describing.recurrent_cells.CELLS`, `inject` one of `INJECTIONS`. If
        `rectified`, the mapped condition and mapped words pass a ReLU.
        """
        super().__init__()
        self.table: Tensor | None = None  # the map of every word (outputs + 1, cell width), if prepared
        self.words = nn.Parameter(torch.empty(outputs + 1, word_dim).uniform_(-0.1, 0.1))
        self.cell = Cell(cell, word_dim, units, forget_bias, rectified)
        self.injection = INJECTIONS[inject]
        width = self.injection.width(Widths(units, word_dim, self.cell.width))
        self.condition = nn.Linear(condition, width)
        nn.init.xavier_uniform_(self.condition.weight)
        nn.init.zeros_(self.condition.bias)
        self.output = nn.Linear(units, outputs)
        nn.init.zeros_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    @property
    def start(self) -> int:
        """The number of START."""
        return len(self.words) - 1

    def start_biases(self, log_frequencies: Tensor) -> None:
        """Set the biases of the outputs (outputs), to the log frequency of each word as a rule."""
        with torch.no_grad():
            self.output.bias.copy_(log_frequencies)

    def hidden_states(
        self, conditions: Tensor, targets: PackedSequence, dropout: Dropout | None = None
    ) -> Tensor:
        """Read true sequences; return the hidden states that predict each target (positions, units).

        The input of a position is the target before it, and START at first. A word that comes again is mapped
        only once on a CPU where there is no dropout of words.

        Conditions (captions, condition) and dropout are in the order before packing.
        """
        sizes = targets.batch_sizes.tolist()
        # The caption at each position.
        sequence = torch.cat([torch.arange(size) for size in sizes]).to(conditions.device)
        order = targets.sorted_indices
        ordered = conditions if order is None else conditions[order]
        entries = self.injection.enter(self.cell.activate(self.condition(ordered)))
        previous = _previous(targets.data, sizes, self.start)
        if dropout is not None:
            factors = pack_like(dropout.words, targets)
            mapped = self.cell.map_input(embedding(previous, self.words) * factors)
        elif is_gpu(previous.device):  # the host would wait for the number of different words
            mapped = self.cell.map_input(embedding(previous, self.words))
        else:
            different, positions = torch.unique(previous, return_inverse=True)
            mapped = embedding(positions, self.cell.map_input(self.words[different]))
        if entries.first is not None:
            # START comes first: its positions are those of the first step.
            mapped = torch.cat([mapped[: sizes[0]] + entries.first, mapped[sizes[0] :]])
        if entries.every is not None:
            mapped = mapped + embedding(sequence, entries.every)
        hidden = self.cell.read(self._first_state(entries, sizes[0], mapped), mapped, sizes)
        if entries.output is not None:
            hidden = hidden + embedding(sequence, entries.output)
        if dropout is not None:
            hidden = hidden * pack_like(dropout.states, targets)
        return hidden

    def losses(
        self, conditions: Tensor, sequences: Sequence[Sequence[int]], dropout: Dropout | None = None
    ) -> Tensor:
        """Return the loss at every position of true sequences, packed (positions)."""
        padded, lengths = pad(sequences)
        targets = pack(padded.to(conditions.device), lengths)
        states = self.hidden_states(conditions, targets, dropout)
        return word_losses(states, self.output.weight, self.output.bias, targets.data)

    def prepared(self) -> "Decoder":
        """Return a decoder with the same weights for writing many sequences: it maps every word only once.

        It must be made again when the weights change.
        """
        twin = copy.copy(self)
        with torch.no_grad():
            twin.table = self._map_input(self.words)
        return twin

    def begin(self, conditions: Tensor) -> tuple[Tensor, Running]:
        """Return the logits of the first outputs (images, outputs) and the sequences begun."""
        entries = self.injection.enter(self.cell.activate(aligned_linear(self.condition, conditions)))
        mapped = self._mapped(torch.full((len(conditions),), self.start, device=conditions.device))
        for each in (entries.first, entries.every):
            mapped = mapped if each is None else mapped + each
        hidden = mapped.new_zeros(len(conditions), self.cell.units)
        state = self.cell.begin(hidden if entries.hidden is None else entries.hidden)
        if entries.word is not None:
            state = self._step(state, self._map_input(entries.word))
        running = Running(self._step(state, mapped), entries.every, entries.output)
        return self._logits(running), running

    def advance(self, running: Running, words: Tensor) -> tuple[Tensor, Running]:
        """Read one more word per row (rows); return the logits of the next outputs and the sequences."""
        mapped = self._mapped(words)
        if running.every is not None:
            mapped = mapped + running.every
        running = running._replace(cell=self._step(running.cell, mapped))
        return self._logits(running), running

    def select(self, running: Running, rows: Tensor) -> Running:
        """Return some rows, in any order and number."""
        every, output = (None if each is None else each[rows] for each in (running.every, running.output))
        return Running(tuple(each[rows] for each in running.cell), every, output)

    def _first_state(self, entries: Entries, rows: int, like: Tensor) -> State:
        hidden = like.new_zeros(rows, self.cell.units) if entries.hidden is None else entries.hidden
        state = self.cell.begin(hidden)
        return state if entries.word is None else self.cell.step(state, self.cell.map_input(entries.word))

    def _mapped(self, words: Tensor) -> Tensor:
        if self.table is None:
            return self._map_input(self.words[words])
        return self.table[words]

    def _map_input(self, vectors: Tensor) -> Tensor:
        return self.cell.activate(aligned_linear(self.cell.input_map, vectors))

    def _step(self, state: State, mapped: Tensor) -> State:
        return self.cell.update(mapped, aligned_linear(self.cell.state_map, state[0]), state)

    def _logits(self, running: Running) -> Tensor:
        hidden = running.cell[0] if running.output is None else running.cell[0] + running.output
        return aligned_linear(self.output, hidden)


def aligned_linear(layer: nn.Linear, inputs: Tensor) -> Tensor:
    """Return a linear map of rows (rows, outputs), padded with zeros to whole vector registers.

    Otherwise the last bits of a row depend on how many rows there are, and those of a column on its place:
    equal outputs would not tie, and an image could get another sentence alone than in a batch.
    """
    inner, outer = -layer.in_features % ALIGNED, -layer.out_features % ALIGNED
    if not inner and not outer:
        return linear(inputs, layer.weight, layer.bias)
    weight = zero_pad(layer.weight, (0, inner, 0, outer))
    bias = None if layer.bias is None else zero_pad(layer.bias, (0, outer))
    return linear(zero_pad(inputs, (0, inner)), weight, bias)[:, : layer.out_features]


def pad(sequences: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Return sequences padded with zeros (captions, longest) and their lengths (captions)."""
    lengths = [len(each) for each in sequences]
    padded = torch.zeros((len(sequences), max(lengths)), dtype=torch.int64)
    for row, sequence in zip(padded, sequences, strict=True):
        row[: len(sequence)] = torch.tensor(sequence)
    return padded, torch.tensor(lengths)


def pack(sequences: Tensor, lengths: Tensor) -> PackedSequence:
    """Pack padded sequences (captions, longest) of any order."""
    return pack_padded_sequence(sequences, lengths.cpu(), batch_first=True, enforce_sorted=False)


def pack_like(values: Tensor, packed: PackedSequence) -> Tensor:
    """Return the values (captions, longest, ...) at the positions of packed sequences (positions, ...)."""
    ordered = values if packed.sorted_indices is None else values[packed.sorted_indices]
    return torch.cat([ordered[:size, step] for step, size in enumerate(packed.batch_sizes.tolist())])


def draw_dropout(
    captions: int, longest: int, word_dim: int, units: int, rate: float, generator: torch.Generator
) -> Dropout:
    """Draw the dropout of a step for a whole batch.

    Caption by caption, so that a process that has some captions of a batch takes their rows.
    """
    keep = 1 - rate
    factors = [
        (torch.rand(captions, longest, width, generator=generator) < keep) / keep
        for width in (word_dim, units)
    ]
    return Dropout(*factors)


def _previous(targets: Tensor, sizes: list[int], start: int) -> Tensor:
    """Return the input of each position (positions): the target before it in its sequence."""
    parts = [targets.new_full((sizes[0],), start)]
    offset = 0
    for size, following in itertools.pairwise(sizes):
        parts.append(targets[offset : offset + following])
        offset += size
    return torch.cat(parts)


def state(mapped: Tensor) -> Entries:
    """The first hidden state; the memory of an LSTM starts at zero."""
    return Entries(hidden=mapped)


def word(mapped: Tensor) -> Entries:
    """A word before START."""
    return Entries(word=mapped)


def bias(mapped: Tensor) -> Entries:
    """A bias of the first step only."""
    return Entries(first=mapped)


def every(mapped: Tensor) -> Entries:
    """A bias of every step."""
    return Entries(every=mapped)


def output(mapped: Tensor) -> Entries:
    """Added to every hidden state on its way to the output; the recurrence does not see the image."""
    return Entries(output=mapped)


INJECTIONS: dict[str, Injection] = {
    "bias": Injection(lambda widths: widths.mapped, bias),
    "every": Injection(lambda widths: widths.mapped, every),
    "input": Injection(lambda widths: widths.word_dim, word),
    "output": Injection(lambda widths: widths.units, output),
    "state": Injection(lambda widths: widths.units, state),
}
