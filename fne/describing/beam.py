"""Beam search over the outputs of a decoder: exact, and batched over images.

The rules, which a plain loop over images and hypotheses follows as well:

- The candidates of a step are every unfinished hypothesis, extended by every output except those that
  are never written, and every hypothesis that has ended, as it is. The best `beam` of them are kept.
- A hypothesis that ends stays with its final score. The search of an image ends when all its
  hypotheses have ended, or after `max_length` steps. Hypotheses without END count as they are.
- The score is the sum of the log probabilities, END included, divided by (words + 1) ** `length_power`.
- On ties the hypothesis that ranked higher before wins, then the lower output number.

Only unfinished hypotheses are computed, and images that are done cost nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from fne.core.errors import InputError

S = TypeVar("S")
# Rows are padded to a multiple of this. A remainder that does not fill vector registers has other last bits,
# and a caption must not depend on its neighbors. The decoder pads its columns for the same reason.
_ROWS = 64


class WordModel(Protocol[S]):
    """What is searched: a decoder, or anything that scores the next output of sequences."""

    def begin(self, conditions: Tensor, /) -> tuple[Tensor, S]:
        """Return the logits of the first outputs (images, outputs) and the state of each row."""

    def advance(self, state: S, words: Tensor, /) -> tuple[Tensor, S]:
        """Read one output per row (rows); return the next logits (rows, outputs) and the state."""

    def select(self, state: S, rows: Tensor, /) -> S:
        """Return some rows of a state, in any order and number."""


@dataclass(frozen=True)
class Hypothesis:
    """A sequence that was written."""

    words: tuple[int, ...]  # without END
    log_probability: float  # the sum over its words and END
    score: float  # the log probability, corrected for the length
    ended: bool  # False if it was cut at the maximum length


def search(
    model: WordModel[S],
    conditions: Tensor,
    *,
    beam: int,
    max_length: int,
    end: int = 0,
    never: Sequence[int] = (),
    length_power: float = 0.0,
    repeats: bool = True,
    block: int = 128,
) -> list[list[Hypothesis]]:
    """Return the most probable sequences for images: at most `beam` hypotheses for each, the best first.

    Args:
        model: a decoder; `Decoder.prepared()` is faster for many images.
        conditions: what describes each image to the model (images, condition).
        beam: the number of hypotheses; 1 is greedy.
        never: outputs that are never written, such as the unknown word.
        length_power: 0 does not correct for the length; 1 takes the mean log probability.
        repeats: False forbids to write an output twice in a sequence.
        block: the number of images that are computed together.
    """
    for name, value in (("beam", beam), ("max_length", max_length), ("block", block)):
        if value < 1:
            raise InputError(f"beam search: {name} is {value}; it must be at least 1")
    if end in never:
        raise InputError(f"beam search: output {end} ends a sequence and must not be among {list(never)}")
    with torch.inference_mode():
        found = []
        for start in range(0, len(conditions), block):
            part = _Search(
                conditions[start : start + block], beam, max_length, end, list(never), length_power
            )
            found += part.run(model, repeats, start)
        return found


class _Search:
    """The hypotheses of a block of images: `beam` slots for each, the best first."""

    def __init__(
        self, conditions: Tensor, beam: int, max_length: int, end: int, never: list[int], length_power: float
    ) -> None:
        images = len(conditions)
        device = conditions.device
        self.conditions = conditions
        self.beam, self.max_length, self.end, self.never = beam, max_length, end, never
        self.length_power = length_power
        self.words = torch.zeros(images, beam, max_length, dtype=torch.long, device=device)
        self.lengths = torch.zeros(images, beam, dtype=torch.long, device=device)
        self.totals = torch.full((images, beam), -torch.inf, dtype=torch.float64, device=device)
        self.totals[:, 0] = 0  # at first one hypothesis, which is empty
        self.ended = torch.zeros(images, beam, dtype=torch.bool, device=device)

    def run(self, model: WordModel[S], repeats: bool, first: int) -> list[list[Hypothesis]]:
        images = len(self.conditions)
        logits, state = model.begin(padded(self.conditions))
        rows = torch.arange(images, device=self.conditions.device)  # the image of each unfinished hypothesis
        live = torch.zeros_like(self.ended)
        live[:, 0] = True
        for step in range(self.max_length):
            parents, words = self._choose(logits[: len(rows)], live, step, repeats, first)
            # Where the hypothesis in each slot had its row.
            held = torch.zeros_like(self.lengths)
            held[live] = rows
            live = torch.isfinite(self.totals) & ~self.ended
            if step + 1 == self.max_length or not live.any():
                break
            sources = padded(held.gather(1, parents)[live])
            logits, state = model.advance(model.select(state, sources), padded(words[live]))
            rows = torch.arange(int(live.sum()), device=rows.device)
        return self._hypotheses()

    def _choose(
        self, logits: Tensor, live: Tensor, step: int, repeats: bool, first: int
    ) -> tuple[Tensor, Tensor]:
        """Go on to the best candidates; return the slot each comes from and its output (images, beam)."""
        values, outputs = self._best_outputs(logits, live, step, repeats, first)  # (rows, choices)
        images, choices = len(self.totals), values.shape[1]
        totals = self.totals.new_full((images, self.beam, choices), -torch.inf)
        totals[live] = self.totals[live][:, None] + values
        words = torch.full((images, self.beam, choices), self.end, device=logits.device)
        words[live] = outputs
        lengths = step + (words != self.end).long()
        # A hypothesis that has ended is one candidate.
        totals[..., 0] = torch.where(self.ended, self.totals, totals[..., 0])
        lengths[..., 0] = torch.where(self.ended, self.lengths, lengths[..., 0])
        scores = totals / (lengths + 1).to(totals.dtype) ** self.length_power
        # Candidates are in the order of slots and outputs, which a stable sort keeps on ties.
        order = scores.flatten(1).sort(dim=1, descending=True, stable=True).indices[:, : self.beam]
        parents = order // choices
        chosen = words.flatten(1).gather(1, order)
        self.totals = totals.flatten(1).gather(1, order)
        self.lengths = lengths.flatten(1).gather(1, order)
        self.words = self.words.gather(1, parents[..., None].expand_as(self.words))
        was_ended = self.ended.gather(1, parents)
        self.words[..., step] = torch.where(was_ended, 0, chosen)
        self.ended = torch.isfinite(self.totals) & (was_ended | (chosen == self.end))
        if not torch.isfinite(self.totals[:, 0]).all():
            image = first + int((~torch.isfinite(self.totals[:, 0])).nonzero()[0])
            raise InputError(
                f"beam search: image {image} has no output {step + 1} that may be written, not even the end; "
                "lower max_length or allow repeats"
            )
        return parents, chosen

    def _best_outputs(
        self, logits: Tensor, live: Tensor, step: int, repeats: bool, first: int
    ) -> tuple[Tensor, Tensor]:
        """Return END and the `beam` best other outputs of each row, by number, with log probabilities.

        No more than `beam` outputs of a row can be among the `beam` best of its image.
        """
        normalizers = logits.logsumexp(dim=1)
        if not torch.isfinite(normalizers).all():
            row = int((~torch.isfinite(normalizers)).nonzero()[0])
            image = first + int(live.nonzero()[row, 0])
            raise InputError(
                f"beam search: the scores of output {step + 1} of image {image} "
                "are not numbers; the model is damaged or its training diverged, train it again"
            )
        ends = logits[:, self.end : self.end + 1].clone()
        logits = logits.clone()
        logits[:, [self.end, *self.never]] = -torch.inf
        if not repeats:
            logits.scatter_(1, self.words[live][:, :step], -torch.inf)
        values, outputs = _top(logits, min(self.beam, logits.shape[1]))
        values, outputs = (
            torch.cat(pair, dim=1)
            for pair in ((ends, values), (torch.full_like(outputs[:, :1], self.end), outputs))
        )
        outputs, order = outputs.sort(dim=1, stable=True)
        return values.gather(1, order).double() - normalizers.double()[:, None], outputs

    def _hypotheses(self) -> list[list[Hypothesis]]:
        scores = (self.totals / (self.lengths + 1).double() ** self.length_power).tolist()
        words, lengths = self.words.tolist(), self.lengths.tolist()
        totals, ended = self.totals.tolist(), self.ended.tolist()
        return [
            [
                Hypothesis(tuple(words[i][k][: lengths[i][k]]), totals[i][k], scores[i][k], ended[i][k])
                for k in range(self.beam)
                if totals[i][k] > -torch.inf
            ]
            for i in range(len(totals))
        ]


def _top(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k highest values of each row and their columns, the lower column on ties."""
    best, columns = values.topk(min(k + 1, values.shape[1]), dim=1)
    highest, columns = best[:, :k], columns[:, :k]
    # `topk` takes any of several equal values. Rows where more than k reach the lowest are sorted.
    tied = (best[:, k:] == highest[:, -1:]).any(dim=1) & torch.isfinite(highest[:, -1])
    if tied.any():
        ranked = values[tied].sort(dim=1, descending=True, stable=True)
        highest[tied], columns[tied] = ranked.values[:, :k], ranked.indices[:, :k]
    return highest, columns


def padded(rows: Tensor) -> Tensor:
    """Repeat the first row until the number of rows is a multiple of `_ROWS`."""
    missing = -len(rows) % _ROWS
    return torch.cat([rows, rows[:1].expand(missing, *rows.shape[1:])]) if missing else rows
