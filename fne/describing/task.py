"""The training of a describer: what the tagging and the captioning task share.

The phases of `fne.describing.settings` train the recognizer, the decoder or both. The loss of the
concepts is summed over concepts, that of the decoder over the positions of a sequence. Both are
averaged over the items of a batch: the images of a tagger, the captions of a captioner. A reader of hints
learns with the recognizer: with a loss of its own in `recognizer` and `apart`, and as part of the sum of
both in `joint`.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from fne.core.processes import ALONE, Processes
from fne.describing.concept_head import log_odds
from fne.describing.decoder import Decoder, Dropout, draw_dropout, pack
from fne.describing.losses import MULTILABEL_LOSSES, MultilabelLoss
from fne.describing.model import Describer, DescriberShape, new_describer
from fne.describing.sequence_loss import word_losses
from fne.describing.settings import DescriberSection
from fne.training.task import Loss, ParameterGroup

# Phases in which image and hints have losses of their own.
SEPARATE = ("apart", "recognizer")


class DescriberBatch(Protocol):
    """Some items to learn from."""

    def __len__(self) -> int: ...

    def part(self, part: slice) -> Self:
        """Return the items of one process."""

    def lengths(self) -> list[int]:
        """Return the length of the sequence of each item, its end included."""


AnyDescriberBatch = TypeVar("AnyDescriberBatch", bound=DescriberBatch)


@dataclass(frozen=True)
class Objective:
    """What a describer learns.

    Attributes:
        learns: what each phase learns.
        recognizer_rates: the rate of the recognizer in each phase, as a factor on that of the decoder.
        concept_loss: the loss of the recognizer, per image; None trains it through the decoder alone.
        concept_weight: the weight of that loss.
        dropout: the fraction of word vectors and of states before the output that is dropped.
    """

    learns: Sequence[str]
    recognizer_rates: Sequence[float]
    concept_loss: MultilabelLoss | None
    concept_weight: float
    dropout: float


def objective_of(settings: DescriberSection) -> Objective:
    """Return what the settings want to be learned."""
    phases = settings.phase_values()
    return Objective(
        [phase["learns"] for phase in phases],
        [phase["recognizer_rate"] / phase["learning_rate"] for phase in phases],
        MULTILABEL_LOSSES.get(settings.concept_loss),
        settings.concept_weight,
        settings.dropout,
    )


def fresh_describer(
    settings: DescriberSection,
    shape: DescriberShape,
    moments: tuple[Tensor, Tensor],
    labels: np.ndarray,
    log_frequencies: np.ndarray,
) -> Describer:
    """Return a describer with fresh weights; with biases of frequencies it predicts those at first.

    Args:
        settings: the section of `params.yaml`.
        shape: what the describer is made of.
        moments: the mean and the deviation of each feature over the training images (features).
        labels: which concepts each training image has (images, concepts).
        log_frequencies: the logarithm of the frequency of each output of the decoder (outputs).
    """
    describer = new_describer(shape, settings.seed, settings.forget_bias)
    describer.fit_rows(*moments)
    if describer.recognizer is not None and settings.concept_bias == "frequency":
        describer.start_concepts(log_odds(labels.sum(axis=0), len(labels)))
    if describer.decoder is not None and settings.output_bias == "frequency":
        describer.decoder.start_biases(torch.from_numpy(log_frequencies).float())
    return describer


class DescriberTask(ABC, Generic[AnyDescriberBatch]):
    """The base of a task that trains a describer: the losses of a phase, and what they are added up to.

    A task adds `section`, `memory_hint`, `batches`, `steps`, `validate` and `warning`.
    """

    sequences: str  # the name of the decoder's loss

    def __init__(self, describer: Describer, objective: Objective, processes: Processes = ALONE) -> None:
        """Prepare the training of a describer with fresh weights."""
        self.describer = describer
        self.trained = nn.ModuleDict({"model": describer})
        self._objective, self._processes = objective, processes
        self._concept_loss = objective.concept_loss
        self.start_phase(0)

    @abstractmethod
    def losses(self, batch: AnyDescriberBatch, dropout: Dropout | None) -> dict[str, Tensor]:
        """Return the sums of the losses over some items, for each of `terms()`."""

    @property
    def decoder(self) -> Decoder:
        """The decoder, which a phase that trains it needs."""
        assert self.describer.decoder is not None, "settings with such a phase have a decoder"
        return self.describer.decoder

    def start_phase(self, number: int) -> None:
        """Use the losses of a phase."""
        self._now = self._objective.learns[number]
        self._rate = self._objective.recognizer_rates[number]

    def parameter_groups(self) -> list[ParameterGroup]:
        """Return what the running phase trains: the decoder and the recognizer have rates of their own."""
        describer = self.describer
        recognizer = [
            weight
            for part in (describer.recognizer, describer.hint_reader)
            if part is not None
            for weight in part.parameters()
        ]
        groups = []
        if self._now != "recognizer" and describer.decoder is not None:
            groups.append(ParameterGroup("decoder", list(describer.decoder.parameters())))
        if self._now != "decoder" and recognizer:
            groups.append(ParameterGroup("recognizer", recognizer, self._rate))
        return groups

    def terms(self) -> list[str]:
        """Return the names of the losses that the running phase learns from."""
        concepts = self._concept_loss is not None and self._now != "decoder"
        hints = concepts and self.describer.hint_reader is not None and self._now in SEPARATE
        sequences = self._now != "recognizer"
        return [*["concepts"] * concepts, *["hints"] * hints, *[self.sequences] * sequences]

    def loss(self, batch: AnyDescriberBatch, generator: torch.Generator) -> Loss:
        """Return the losses of the running phase, and their weighted sum."""
        part = self._processes.partition(len(batch))
        own = batch.part(part)
        dropout = self._draw_dropout(batch, part, generator)
        if len(own):
            terms = {name: each / len(batch) for name, each in self.losses(own, dropout).items()}
        else:  # a batch of fewer items than there are processes
            zero = torch.zeros((), device=self.describer.device)
            terms = {name: zero.clone().requires_grad_() for name in self.terms()}
        # Every process has its own part of the sums; the history has the whole.
        whole = torch.stack([each.detach() for each in terms.values()])
        self._processes.add(whole)
        # The trainer adds up values of batches and divides by the number of items.
        values = {name: each * len(batch) for name, each in zip(terms, whole, strict=True)}
        return Loss(self._weighted(terms), self._weighted(values), values)

    def sequence_losses(
        self, conditions: Tensor, padded: Tensor, lengths: Tensor, dropout: Dropout | None
    ) -> Tensor:
        """Return the loss at every position of some sequences (positions)."""
        targets = pack(padded.to(conditions.device), lengths)
        states = self.decoder.hidden_states(conditions, targets, dropout)
        output = self.decoder.output
        return word_losses(states, output.weight, output.bias, targets.data)

    def _weighted(self, terms: dict[str, Tensor]) -> Tensor:
        weights = {name: 1.0 if name == self.sequences else self._objective.concept_weight for name in terms}
        return torch.stack([weights[name] * each for name, each in terms.items()]).sum()

    def _draw_dropout(
        self, batch: AnyDescriberBatch, part: slice, generator: torch.Generator
    ) -> Dropout | None:
        """Draw the dropout of the whole batch; return that of the items of this process."""
        if self._objective.dropout == 0 or self._now == "recognizer":
            return None
        shape, longest = self.describer.shape, max(batch.lengths())
        drawn = draw_dropout(
            len(batch), longest, shape.word_dim, shape.units, self._objective.dropout, generator
        )
        return Dropout(*(each[part].to(self.describer.device) for each in drawn))
