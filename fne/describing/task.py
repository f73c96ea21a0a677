"""The task of a tagger or a captioner: a concept head and a decoder of words, trained by phases.

The phases of `fne.describing.settings` train the concept head, the decoder or both. The loss of concepts is
summed over concepts, that of the decoder over the positions of a sequence. Both are averaged over the
sequences of a batch: a tagger has one per image, a captioner one per caption. A reader of user tags learns
with the concept head: by a loss of its own in `concept_head` and `separately`, by the sum in `jointly`.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fne.core.processes import ALONE, Processes
from fne.describing.data import Examples, SequenceBatch
from fne.describing.decoder import Dropout, draw_dropout
from fne.describing.losses import MULTILABEL_LOSSES, MultilabelLoss
from fne.describing.model import DescribingModel
from fne.describing.settings import TAGGER, DescribingSection
from fne.describing.validation import Validation
from fne.training.best_epoch import Point, Scores
from fne.training.task import Loss, ParameterGroup

# Phases in which image and user tags have losses of their own.
SEPARATE = ("separately", "concept_head")


@dataclass(frozen=True)
class Objective:
    """What a model learns."""

    learns: Sequence[str]  # by each phase
    concept_head_rates: Sequence[float]  # per phase, as a factor on the rate of the decoder
    concept_loss: MultilabelLoss | None  # per image; None trains the concept head through the decoder alone
    concept_weight: float
    dropout: float  # the fraction of word vectors and of states before the output that is dropped
    network_rates: Sequence[float] = ()  # as for the concept head; none: rows are constants

    @classmethod
    def of(cls, settings: DescribingSection, network_rates: Sequence[float] = ()) -> "Objective":
        """Return what the settings want to be learned; `network_rates` are learning rates per phase."""
        phases = settings.phase_values()
        factors = [rate / phase["learning_rate"] for rate, phase in zip(network_rates, phases, strict=False)]
        return cls(
            [phase["learns"] for phase in phases],
            [phase["concept_head_rate"] / phase["learning_rate"] for phase in phases],
            MULTILABEL_LOSSES.get(settings.concept_loss),
            settings.concept_weight,
            settings.dropout,
            factors,
        )


@dataclass(frozen=True)
class Batching:
    """How the sequences of an epoch become batches."""

    seed: int
    batch: int
    draw: str = "all"  # a key of `fne.describing.data.DRAWS`


class DescribingTask:
    """Learns to recognize concepts and to write; validated by what it writes, or by its concepts."""

    def __init__(
        self,
        kind: str,
        model: DescribingModel,
        objective: Objective,
        training: Examples,
        batching: Batching,
        validation: Validation,
        processes: Processes = ALONE,
        section: str = "",
        memory_hint: str = "",
    ) -> None:
        """Prepare the training of a model of a kind, and of the network of its rows, if there is one."""
        self.section = section or f"train_{kind}"
        self.memory_hint = (
            memory_hint or f"lower {self.section}.batch, {self.section}.units or {self.section}.word_dim"
        )
        self.sequences = "tags" if kind == TAGGER else "words"  # the name of the decoder's loss
        self.model = model
        network = training.source.network
        self.trained = nn.ModuleDict(({} if network is None else {"network": network}) | {"model": model})
        self.training, self.validation = training, validation
        self._objective, self._batching, self._processes = objective, batching, processes
        self.start_phase(0)

    def start_phase(self, number: int) -> None:
        """Use the losses of a phase."""
        self._now = self._objective.learns[number]
        self._rate = self._objective.concept_head_rates[number]
        rates = self._objective.network_rates
        # The decoder alone learns from rows and concepts that do not change.
        self._network_rate = rates[number] if rates and self._now != "decoder" else 0.0

    def parameter_groups(self) -> list[ParameterGroup]:
        """Return what the running phase trains: the decoder and the concept head have rates of their own."""
        model = self.model
        concept_head = [
            weight
            for part in (model.concept_head, model.user_tag_reader)
            if part is not None
            for weight in part.parameters()
        ]
        groups = []
        if self._network_rate:
            network = [each for own in self.training.source.parameter_groups() for each in own.parameters]
            groups.append(ParameterGroup("network", network, self._network_rate))
        if self._now != "concept_head" and model.decoder is not None:
            groups.append(ParameterGroup("decoder", list(model.decoder.parameters())))
        if self._now != "decoder" and concept_head:
            groups.append(ParameterGroup("concept_head", concept_head, self._rate))
        return groups

    def steps(self) -> int:
        """Return the number of batches per epoch."""
        return self.training.steps(self._batching.batch, self._batching.draw)

    def batches(self, epoch: int) -> list[SequenceBatch]:
        """Return the batches of an epoch."""
        order = self._batching
        return self.training.batches(order.seed, epoch, order.batch, order.draw)

    def validate(self) -> Scores:
        """Return the scores of the validation images."""
        self.trained.eval()
        return self.validation.scores(self.model, self._now)

    def warning(self, phase: int, points: Sequence[Point]) -> str | None:
        """Detect a tagger or captioner that writes the same for all images."""
        found = self.validation.warning(self._objective.learns[phase], points)
        # The section of a fine-tuning has no `rows`: the model before has chosen.
        rows = "" if "network" in self.trained else f"use {self.section}.rows=standardized, "
        remedy = f"let it train longer, {rows}or try another {self.section}.learning_rate"
        return f"{found}; {remedy}" if found else None

    def terms(self) -> list[str]:
        """Return the names of the losses that the running phase learns from."""
        concepts = self._objective.concept_loss is not None and self._now != "decoder"
        user_tags = concepts and self.model.user_tag_reader is not None and self._now in SEPARATE
        sequences = self._now != "concept_head"
        return [*["concepts"] * concepts, *["user_tags"] * user_tags, *[self.sequences] * sequences]

    def loss(self, batch: SequenceBatch, generator: torch.Generator) -> Loss:
        """Return the losses of the running phase, and their weighted sum."""
        part = self._processes.partition(len(batch))
        own = batch.part(part)
        dropout = self._draw_dropout(batch, part, generator)
        if len(own):
            terms = {name: each / len(batch) for name, each in self.losses(own, dropout).items()}
        else:  # a batch of fewer sequences than there are processes
            zero = torch.zeros((), device=self.model.device)
            terms = {name: zero.clone().requires_grad_() for name in self.terms()}
        # Every process has its own part of the sums; the history has the whole.
        whole = torch.stack([each.detach() for each in terms.values()])
        self._processes.add(whole)
        # The trainer adds up values of batches and divides by the number of sequences.
        values = {name: each * len(batch) for name, each in zip(terms, whole, strict=True)}
        return Loss(self._weighted(terms), self._weighted(values), values)

    def losses(self, batch: SequenceBatch, dropout: Dropout | None) -> dict[str, Tensor]:
        """Return the sums of the losses over some sequences, for each of `terms()`."""
        model, data, terms = self.model, self.training, self.terms()
        device, concept_loss = model.device, self._objective.concept_loss
        images, places = batch.different_images()
        with nullcontext() if self._network_rate else torch.no_grad():
            rows = data.images(images, batch.epoch).to(device)
        truth = data.truth(images).to(device)
        user_tags = data.read_user_tags(images)
        owner = None if places is None else torch.from_numpy(places).to(device)

        def of_sequences(values: Tensor) -> Tensor:
            return values if owner is None else values[owner]

        with torch.no_grad() if self._now == "decoder" else nullcontext():
            seen = model.see(rows, None if user_tags is None else user_tags.to(device))
        found: dict[str, Tensor] = {}
        if "concepts" in terms and concept_loss is not None:
            logits = seen.image_logits if self._now in SEPARATE else seen.logits
            assert logits is not None, "settings with a loss of concepts have a concept head"
            found["concepts"] = of_sequences(concept_loss(logits, truth)).sum()
            if "user_tags" in terms and seen.user_tag_logits is not None:
                found["user_tags"] = of_sequences(concept_loss(seen.user_tag_logits, truth)).sum()
        if self.sequences in terms:
            assert model.decoder is not None, "settings with such a phase have a decoder"
            conditions = of_sequences(truth if self._now == "separately" else model.condition(seen))
            losses = model.decoder.losses(conditions, batch.sequences(), dropout)
            found[self.sequences] = losses.sum()
        return found

    def _weighted(self, terms: dict[str, Tensor]) -> Tensor:
        weights = {name: 1.0 if name == self.sequences else self._objective.concept_weight for name in terms}
        return torch.stack([weights[name] * each for name, each in terms.items()]).sum()

    def _draw_dropout(self, batch: SequenceBatch, part: slice, generator: torch.Generator) -> Dropout | None:
        """Draw the dropout of the whole batch; return that of the sequences of this process."""
        if self._objective.dropout == 0 or self._now == "concept_head":
            return None
        shape, longest = self.model.shape, max(map(len, batch.sequences()))
        drawn = draw_dropout(
            len(batch), longest, shape.word_dim, shape.units, self._objective.dropout, generator
        )
        return Dropout(*(each[part].to(self.model.device) for each in drawn))
