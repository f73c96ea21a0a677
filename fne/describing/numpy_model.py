"""A describer in NumPy: what `fne describe` needs to answer without importing torch.

`ArrayDescriber` sees concepts and `ArrayDecoder` writes sequences, from the weights of a model file. Both
follow `fne.describing.model` and `fne.describing.decoder` step by step, and tests compare them.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import Field

from fne.core.errors import InputError
from fne.core.params import Section

# The bounds of the keys of a search, in `params.yaml`.
Beam = Annotated[int, Field(ge=1, le=1000)]
LengthPower = Annotated[float, Field(ge=0, le=10)]
MaxLength = Annotated[int, Field(ge=1, le=1000)]
Weights = Mapping[str, np.ndarray]
State = tuple[np.ndarray, ...]
# Probabilities that are added up become logits again within these bounds.
LEAST = 1e-6


class Writing(Section):
    """How sentences are written: the number of hypotheses, the most words, the correction for the length."""

    beam: Beam
    max_length: MaxLength
    length_power: LengthPower


class Running(NamedTuple):
    """Sequences that are being written, one row each."""

    cell: State
    every: np.ndarray | None  # (rows, cell width)
    output: np.ndarray | None  # (rows, units)


class ArrayDecoder:
    """The decoder of a model file: word vectors, a cell, the map of the condition and the map to outputs."""

    def __init__(self, cell: str, inject: str, weights: Weights) -> None:
        """Take the weights by their names in `fne.describing.decoder.Decoder`."""
        self._cell, self._inject, self._weights = cell, inject, weights
        self._table = self._linear("cell.input_map", weights["words"])  # every word, mapped once

    @property
    def start(self) -> int:
        """The number of START."""
        return len(self._table) - 1

    def begin(self, conditions: np.ndarray) -> tuple[np.ndarray, Running]:
        """Return the logits of the first outputs (images, outputs) and the sequences begun."""
        mapped_condition = self._linear("condition", conditions)
        place = self._inject
        units = self._weights["cell.state_map.weight"].shape[1]
        hidden = mapped_condition if place == "state" else np.zeros((len(conditions), units), np.float32)
        state = CELLS[self._cell].begin(hidden)
        if place == "input":
            state = self._step(state, self._linear("cell.input_map", mapped_condition))
        mapped = np.repeat(self._table[self.start :], len(conditions), axis=0)
        if place in ("bias", "every"):
            mapped = mapped + mapped_condition
        running = Running(
            self._step(state, mapped),
            mapped_condition if place == "every" else None,
            mapped_condition if place == "output" else None,
        )
        return self._logits(running), running

    def advance(self, running: Running, words: np.ndarray) -> tuple[np.ndarray, Running]:
        """Read one more output per row (rows); return the logits of the next outputs and the sequences."""
        mapped = self._table[words]
        if running.every is not None:
            mapped = mapped + running.every
        running = running._replace(cell=self._step(running.cell, mapped))
        return self._logits(running), running

    def select(self, running: Running, rows: np.ndarray) -> Running:
        """Return some rows, in any order and number."""
        every, output = (None if each is None else each[rows] for each in (running.every, running.output))
        return Running(tuple(each[rows] for each in running.cell), every, output)

    def _step(self, state: State, mapped: np.ndarray) -> State:
        return CELLS[self._cell].update(mapped, self._linear("cell.state_map", state[0]), state)

    def _logits(self, running: Running) -> np.ndarray:
        hidden = running.cell[0] if running.output is None else running.cell[0] + running.output
        return self._linear("output", hidden)

    def _linear(self, name: str, inputs: np.ndarray) -> np.ndarray:
        return linear(self._weights, name, inputs)


class ArrayDescriber:
    """The describer of a model file, as far as it has parts."""

    def __init__(self, shape: Mapping[str, Any], weights: Weights) -> None:
        """Take the shape and the weights by their names in `fne.describing.model`."""
        self.shape = shape
        self._weights = weights
        decoder = {
            name.removeprefix("decoder."): value
            for name, value in weights.items()
            if name.startswith("decoder.")
        }
        self.decoder = ArrayDecoder(shape["cell"], shape["inject"], decoder) if shape["outputs"] else None

    def see(self, rows: np.ndarray, hints: np.ndarray | None = None) -> tuple[np.ndarray | None, np.ndarray]:
        """Return the probabilities of the concepts, if there are any, and the condition of the decoder.

        Args:
            rows: image rows (images, features).
            hints: 0/1 for each hint (images, hints), if the describer reads any.
        """
        weights, shape = self._weights, self.shape
        scaled = (rows.astype(np.float32) - weights["scaling.shift"]) * weights["scaling.scale"]
        if shape["rows"] == "unit":
            lengths = np.linalg.norm(scaled, axis=1, keepdims=True)
            scaled = scaled / np.maximum(lengths, 1e-12)
        if not shape["concepts"]:
            return None, scaled
        encoded = scaled
        if shape["hidden"]:
            encoded = np.maximum(linear(weights, "recognizer.hidden.0", scaled), 0)
        logits = linear(weights, "recognizer.concepts", encoded)
        if shape["hints"]:
            if hints is None:
                raise ValueError("this describer reads hints: give them, zeros where there are none")
            hidden = np.maximum(linear(weights, "hint_reader.hidden.0", hints.astype(np.float32)), 0)
            evidence = linear(weights, "hint_reader.concepts", hidden)
            if shape["hint_sum"] == "logits":
                logits = logits + evidence
            else:
                both = sigmoid(logits) + sigmoid(evidence + weights["prior"])
                both = both.clip(LEAST, 1 - LEAST)
                logits = np.log(both / (1 - both))
        probabilities = sigmoid(logits)
        conditions = {"concepts": probabilities, "embedding": scaled, "hidden": encoded}
        return probabilities, conditions[shape["condition"]]


def greedy_without_repeats(decoder: ArrayDecoder, conditions: np.ndarray, end: int = 0) -> list[list[int]]:
    """Write the likeliest output after the other, none twice, until END or until all are written.

    It writes what `fne.describing.beam.search` writes with one hypothesis and without repeats.
    """
    logits, running = decoder.begin(conditions)
    written: list[list[int]] = [[] for _ in conditions]
    rows = np.arange(len(conditions))  # of the unfinished sequences
    for _ in range(logits.shape[1] - 1):
        for row, image in enumerate(rows):
            logits[row, written[image]] = -np.inf
        chosen = logits.argmax(axis=1)
        for image, word in zip(rows, chosen, strict=True):
            if word != end:
                written[image].append(int(word))
        going_on = np.flatnonzero(chosen != end)
        if not len(going_on):
            break
        rows = rows[going_on]
        logits, running = decoder.advance(decoder.select(running, going_on), chosen[going_on])
    return written


class Sequence(NamedTuple):
    """A sequence that was written, as `fne.describing.beam.Hypothesis` has it."""

    words: tuple[int, ...]  # without END
    log_probability: float  # the sum over its words and END
    score: float  # the log probability, corrected for the length
    ended: bool  # False if it was cut at the maximum length


def beam_search(
    decoder: ArrayDecoder,
    condition: np.ndarray,
    *,
    beam: int,
    max_length: int,
    end: int = 0,
    never: Iterable[int] = (),
    length_power: float = 0.0,
) -> list[Sequence]:
    """Write the most probable sequences for one image, by the rules of `fne.describing.beam`.

    Args:
        decoder: the decoder.
        condition: what describes the image (condition).
        beam: the number of hypotheses; 1 is greedy.
        max_length: the most words of a sequence.
        end: the output that ends a sequence.
        never: outputs that are never written.
        length_power: 0 does not correct for the length; 1 takes the mean log probability.

    Returns:
        the hypotheses, the best first.

    Raises:
        InputError: if a setting makes no sense, or if the scores are not numbers.
    """
    for name, value in (("beam", beam), ("max_length", max_length)):
        if value < 1:
            raise InputError(f"beam search: {name} is {value}; it must be at least 1")
    logits, running = decoder.begin(condition[None])
    found = [Sequence((), 0.0, 0.0, False)]
    for step in range(max_length):
        # Of each candidate: the sequence, the row that it continues, and its last output.
        candidates: list[tuple[Sequence, int, int]] = []
        row = 0
        for each in found:
            if each.ended:
                candidates.append((each, -1, end))
                continue
            values = logits[row].astype(np.float64)
            if not np.isfinite(values.max()):
                raise InputError(
                    f"beam search: the scores of output {step + 1} are not numbers; the model is damaged or "
                    "its training diverged, train it again"
                )
            values -= np.log(np.exp(values - values.max()).sum()) + values.max()
            for output in _best_outputs(values, beam, end, never):
                total = each.log_probability + float(values[output])
                words = each.words if output == end else (*each.words, output)
                score = total / (len(words) + 1) ** length_power
                candidates.append((Sequence(words, total, score, output == end), row, output))
            row += 1
        candidates.sort(key=lambda candidate: -candidate[0].score)  # stable
        kept = candidates[:beam]
        found = [each for each, _, _ in kept]
        live = [(row, output) for each, row, output in kept if not each.ended]
        if not live or step + 1 == max_length:
            break
        rows, outputs = (np.array(each) for each in zip(*live, strict=True))
        logits, running = decoder.advance(decoder.select(running, rows), outputs)
    return found


def _best_outputs(values: np.ndarray, beam: int, end: int, never: Iterable[int]) -> list[int]:
    """Return END and the `beam` best other outputs, by number; the lower number on ties."""
    others = values.copy()
    others[[end, *never]] = -np.inf
    best = np.argsort(-others, kind="stable")[:beam]
    ends = [end] if np.isfinite(values[end]) else []
    return sorted([*ends, *(int(each) for each in best if np.isfinite(others[each]))])


def linear(weights: Weights, name: str, inputs: np.ndarray) -> np.ndarray:
    """Return the linear map of a name, with its biases if it has any."""
    mapped: np.ndarray = inputs @ weights[f"{name}.weight"].T
    return mapped + weights[f"{name}.bias"] if f"{name}.bias" in weights else mapped


def sigmoid(values: np.ndarray) -> np.ndarray:
    """Return 1 / (1 + exp(-values)), without overflow."""
    # exp of the negative magnitude is at most 1.
    small = np.exp(-np.abs(values))
    found: np.ndarray = np.where(values >= 0, 1 / (1 + small), small / (1 + small))
    return found


@dataclass(frozen=True)
class ArrayCell:
    """The first and the next steps of a cell, as in `fne.describing.recurrent_cells`."""

    begin: Callable[[np.ndarray], State]
    update: Callable[[np.ndarray, np.ndarray, State], State]


def _relu(values: np.ndarray) -> np.ndarray:
    found: np.ndarray = np.maximum(values, 0)
    return found


def _lstm(activation: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray, np.ndarray, State], State]:
    def update(of_input: np.ndarray, of_hidden: np.ndarray, state: State) -> State:
        taken, forget, shown, new = np.split(of_input + of_hidden, 4, axis=1)
        memory = sigmoid(forget) * state[1] + sigmoid(taken) * activation(new)
        return sigmoid(shown) * activation(memory), memory

    return update


def _gru(of_input: np.ndarray, of_hidden: np.ndarray, state: State) -> State:
    reset_in, keep_in, new_in = np.split(of_input, 3, axis=1)
    reset, keep, new = np.split(of_hidden, 3, axis=1)
    proposed = np.tanh(new_in + sigmoid(reset_in + reset) * new)
    return (proposed + sigmoid(keep_in + keep) * (state[0] - proposed),)


def _rnn_relu(of_input: np.ndarray, of_hidden: np.ndarray, state: State) -> State:
    return (_relu(of_input + of_hidden),)


CELLS: dict[str, ArrayCell] = {
    "gru": ArrayCell(lambda hidden: (hidden,), _gru),
    "lstm": ArrayCell(lambda hidden: (hidden, np.zeros_like(hidden)), _lstm(np.tanh)),
    "lstm_relu": ArrayCell(lambda hidden: (hidden, np.zeros_like(hidden)), _lstm(_relu)),
    "rnn_relu": ArrayCell(lambda hidden: (hidden,), _rnn_relu),
}
