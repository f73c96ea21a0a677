"""Where the condition, which describes the image, enters a decoder.

The condition of an image (concept probabilities, a hidden layer, or its embedding) passes one linear map.
An injection says how wide the map is and where its result enters. Every injection is called as
`injection(mapped)` with the mapped condition (images, width) and returns `Entries`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor


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
    mapped: int  # of the cell's mapped input


@dataclass(frozen=True)
class Injection:
    """The width of the map of a condition, and the place where it enters."""

    width: Callable[[Widths], int]
    enter: Callable[[Tensor], Entries]


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
