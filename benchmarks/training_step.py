"""One step of training: ours, and the usual way with torch's own parts.

All variants start from the same weights and see the same batches of 128 pairs, with 1,024
dimensions for words and vectors. Their first losses are compared before anything is measured.
"""

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize
from torch.nn.utils.rnn import pack_padded_sequence

from benchmarks.flickr8k import BATCH, FEATURES, VOCABULARY, draw_batch
from benchmarks.timing import Ratio, compare, print_table, ratio
from fne.evaluation.metrics.ranks import Similarity
from fne.matching.data import PairBatch as PairBatch
from fne.matching.data import PairDraw
from fne.matching.hard_negatives import LossChoices, mined_loss
from fne.matching.model import Matcher, Shape, new_matcher
from fne.matching.task import MatchingData, MatchingTask, Objective
from fne.training.best_epoch import Phase
from fne.training.loop import Schedule, Trainer
from fne.training.optimizers import CLIPS, OPTIMIZERS
from fne.training.task import ParameterGroup

DIM, BATCHES, ROUNDS = 1024, 4, 8
RATE, CLIP, MARGIN = 2e-4, 2.0, 0.2
USUAL, FUSED, OURS = "pack_padded_sequence, Adam", "pack_padded_sequence, fused Adam", "ours"

Batch = tuple[Tensor, Tensor, Tensor]
Embed = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


def training_step() -> Ratio:
    """Make training steps with the cosine, against pack_padded_sequence and torch's default Adam."""
    return _measure("cosine", lambda images, captions: images @ captions.T)


def training_step_order() -> Ratio:
    """Make training steps with the order similarity, against the same with all differences at once."""
    return _measure("order", broadcast_order)


def tiny(folder: Path) -> None:
    """Run both with little data."""
    _measure("cosine", lambda images, captions: images @ captions.T, dim=16, batch=8, features=64, rounds=1)
    _measure("order", broadcast_order, dim=16, batch=8, features=64, rounds=1)


def broadcast_order(images: Tensor, captions: Tensor) -> Tensor:
    """The order similarity as it is usually written, with a tensor (images, captions, dim)."""
    return -(captions[None] - images[:, None]).clamp(min=0).square().sum(dim=2)


def our_step(matcher: Matcher) -> Callable[[Batch], float]:
    """Return a function that makes one update with the trainer of the stage, and returns the loss."""
    data = _InMemory()
    objective = Objective("sum_hinge", LossChoices(), MARGIN)
    pairs = MatchingData(data, data, PairDraw([], 0, BATCH, "one"))  # type: ignore[arg-type]
    task = MatchingTask(matcher, [objective], pairs)
    optimizer = partial(OPTIMIZERS["adam"], settings=None)
    trainer = Trainer(task, Schedule([Phase("sum_hinge", RATE, 1, 1)], 0, optimizer, CLIP, "global", 0))

    def step(batch: Batch) -> float:
        data.batch = batch
        ids = [str(number) for number in range(len(batch[0]))]
        return trainer.step(PairBatch(ids, ids))[0]

    return step


class _InMemory:
    """The one batch that a step learns from, in place of stored pairs and their rows."""

    network = None
    batch: Batch

    def __init__(self) -> None:
        self.source = self

    def parameter_groups(self) -> list[ParameterGroup]:
        return []

    def read(self, ids: Sequence[str], views: Sequence[int] | None = None) -> Tensor:
        return self.batch[0]

    def captions(self, ids: Sequence[str]) -> tuple[Tensor, Tensor]:
        return self.batch[1], self.batch[2]


def _measure(
    similarity: str,
    usual_similarity: Similarity,
    dim: int = DIM,
    batch: int = BATCH,
    features: int = FEATURES,
    rounds: int = ROUNDS,
) -> Ratio:
    generator = np.random.default_rng(0)
    batches = [draw_batch(generator, batch, features) for _ in range(BATCHES)]
    shape = Shape(
        "linear",
        "gru",
        similarity,
        similarity == "order",
        features,
        VOCABULARY,
        dim,
        dim,
        text_encoder_settings={"initial": "torch"},
    )
    steps = {}
    for name, fused in ((USUAL, False), (FUSED, True)):
        usual = new_matcher(shape, seed=0)
        optimizer = torch.optim.Adam(usual.parameters(), lr=RATE, fused=fused)
        steps[name] = _step(usual, _embed_usually(usual), usual_similarity, optimizer)
    steps[OURS] = our_step(new_matcher(shape, seed=0))
    losses = [step(batches[0]) for step in steps.values()]
    assert max(losses) - min(losses) < 1e-4 * max(losses), losses
    seconds = compare({name: _in_turn(step, batches) for name, step in steps.items()}, rounds)
    print_table(seconds, USUAL, "pairs", batch)
    return ratio(seconds, OURS, USUAL)


def _step(
    matcher: Matcher, embed: Embed, similarity: Similarity, optimizer: torch.optim.Optimizer
) -> Callable[[Batch], float]:
    def step(batch: Batch) -> float:
        scores = similarity(*embed(*batch))
        true_pairs, truth = torch.eye(len(scores), dtype=torch.bool), torch.arange(len(scores))
        total = mined_loss("sum_hinge", LossChoices(), scores, true_pairs, truth, MARGIN)
        optimizer.zero_grad()
        total.backward()
        CLIPS["global"]([list(matcher.parameters())], CLIP)
        optimizer.step()
        return total.item()

    return step


def _embed_usually(matcher: Matcher) -> Embed:
    """Use the same weights as VSE++ does."""
    encoder = matcher.text_encoder

    def embed(rows: Tensor, words: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        packed = pack_padded_sequence(encoder.words(words), lengths, batch_first=True, enforce_sorted=False)
        images, captions = normalize(matcher.image_head(rows)), normalize(encoder.reader(packed)[1][0])
        return (images.abs(), captions.abs()) if matcher.shape.absolute else (images, captions)

    return embed


def _in_turn(step: Callable[[Batch], float], batches: list[Batch]) -> Callable[[], float]:
    endless = itertools.cycle(batches)
    return lambda: step(next(endless))
