"""A second task for the trainer: a linear classifier of tags with dropout, and a loss that owns weights."""

from dataclasses import dataclass

import torch
from torch import nn

from fne.core.processes import ALONE
from fne.training.best_epoch import Scores
from fne.training.task import Loss, ParameterGroup

IMAGES, FEATURES, TAGS, BATCH = 24, 6, 3, 5
KEEP = 0.7  # the share of the features in a training step


@dataclass(frozen=True)
class Rows:
    """The positions of some images."""

    positions: list[int]

    def __len__(self):
        return len(self.positions)

    def __str__(self):
        return f"images {self.positions}"


class ScaledLogistic(nn.Module):
    """A logistic loss that owns a learned scale per tag."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(TAGS, dtype=torch.float64))

    def forward(self, logits, truth):
        each = nn.functional.binary_cross_entropy_with_logits(logits * self.scale, truth, reduction="none")
        return each.sum()


class TagsTask:
    """Predicts tags from rows; two phases, of which the second freezes the loss's own weights."""

    section = "tag"
    memory_hint = "lower tag.batch"

    def __init__(self, seed=0, processes=ALONE):
        generator = torch.Generator().manual_seed(seed)
        self._seed, self._processes = seed, processes
        self._rows = torch.randn(IMAGES, FEATURES, generator=generator, dtype=torch.float64)
        weights = torch.randn(FEATURES, TAGS, generator=generator, dtype=torch.float64)
        self._truth = (self._rows @ weights > 0).double()
        self.model = nn.Linear(FEATURES, TAGS, dtype=torch.float64)
        with torch.no_grad():
            self.model.weight.copy_(
                torch.rand(TAGS, FEATURES, generator=generator, dtype=torch.float64) - 0.5
            )
            self.model.bias.zero_()
        self.logistic = ScaledLogistic()
        self.trained = nn.ModuleDict(
            {"model": self.model, "losses": nn.ModuleDict({"logistic": self.logistic})}
        )
        self.start_phase(0)

    def start_phase(self, number):
        self._decay = 0.1 if number == 0 else 0.0
        self._train_scale = number == 0

    def parameter_groups(self):
        groups = [ParameterGroup("weights", list(self.model.parameters()))]
        scale = list(self.logistic.parameters()) if self._train_scale else []
        return [*groups, ParameterGroup("scale", scale, rate=0.1)]

    def steps(self):
        return -(-IMAGES // BATCH)

    def batches(self, epoch):
        generator = torch.Generator().manual_seed(1000 * self._seed + epoch)
        order = torch.randperm(IMAGES, generator=generator).tolist()
        return [Rows(order[start : start + BATCH]) for start in range(0, IMAGES, BATCH)]

    def loss(self, batch, generator):
        kept = (torch.rand(len(batch), FEATURES, generator=generator) < KEEP).double()  # for the whole batch
        own = self._processes.partition(len(batch))
        positions = batch.positions[own]
        logits = self.model(self._rows[positions] * kept[own] / KEEP)
        logistic = self.logistic(logits, self._truth[positions]) / len(batch)
        # Every process holds its own part of the sum; the history wants the whole.
        whole = logistic.detach().clone()
        self._processes.add(whole)
        decay = self.model.weight.square().sum() / self._processes.count
        decay_whole = decay.detach() * self._processes.count
        value = whole + self._decay * decay_whole
        return Loss(logistic + self._decay * decay, value, {"logistic": whole, "decay": decay_whole})

    def validate(self):
        with torch.no_grad():
            right = ((self.model(self._rows) > 0) == (self._truth > 0)).double().mean().item()
        return Scores({"accuracy": right, "error": 1 - right})

    def warning(self, phase, points):
        return "accuracy is perfect" if points[-1].scores.main == 1 else None
