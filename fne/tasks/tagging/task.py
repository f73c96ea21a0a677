"""The tagging task: a recognizer of concepts and a decoder of tags, apart or together.

What a phase learns:

- `recognizer`: the recognizer, from the true concepts.
- `apart`: the recognizer from the true concepts, and the decoder with the TRUE concepts as its
  condition. No gradient of one reaches the other.
- `decoder`: the decoder, with what the recognizer predicts; the recognizer is held.
- `joint`: both, with the sum of both losses. Gradients of the tags reach the recognizer.

The loss of the concepts is summed over concepts, that of the tags over the sequence of an image. Both are
averaged over the images of a batch. A reader of hints learns with the recognizer: with a loss of
its own in `recognizer` and `apart`, and as part of the sum of both in `joint`.
"""

from collections.abc import Sequence
from contextlib import nullcontext

import numpy as np
import torch
from torch import Tensor, nn

from fne.core.processes import ALONE, Processes
from fne.losses.multilabel import MultilabelLoss
from fne.losses.sequence import word_losses
from fne.models.decoders.decoder import Dropout, draw_dropout, pack
from fne.models.describer import Describer
from fne.tasks.tagging.data import Batch, Examples
from fne.tasks.tagging.validate import collapse_warning, validate
from fne.training.progress import Point, Scores
from fne.training.task import Loss, ParameterGroup

# Phases in which image and hints have losses of their own.
_SEPARATE = ("apart", "recognizer")


class TaggingTask:
    """Learns to tag; validated by the tags that it writes, or by its concepts if it writes none."""

    section = "train_tagger"
    memory_hint = "lower train_tagger.batch, train_tagger.units or train_tagger.word_dim"

    def __init__(
        self,
        describer: Describer,
        training: Examples,
        validation: Examples,
        *,
        learns: Sequence[str],
        recognizer_rates: Sequence[float],
        concept_loss: MultilabelLoss | None,
        concept_weight: float,
        dropout: float,
        seed: int,
        batch: int,
        processes: Processes = ALONE,
    ) -> None:
        """Make a task.

        Args:
            describer: the tagger, with fresh weights.
            training: what it learns from.
            validation: what it is judged by.
            learns: what each phase learns.
            recognizer_rates: the rate of the recognizer in each phase, as a factor on that of the decoder.
            concept_loss: of the recognizer, per image; None trains it through the tags alone.
            concept_weight: of that loss.
            dropout: the fraction of tag vectors and of states before the output that is dropped.
            seed: of the order of the images.
            batch: images per step.
            processes: the processes that train together.
        """
        self.describer = describer
        self.trained = nn.ModuleDict({"model": describer})
        self._training, self._validation = training, validation
        self._learns, self._rates = learns, recognizer_rates
        self._concept_loss, self._concept_weight = concept_loss, concept_weight
        self._dropout, self._seed, self._batch = dropout, seed, batch
        self._processes = processes
        self.start_phase(0)

    def start_phase(self, number: int) -> None:
        """Use the losses of a phase."""
        self._now, self._rate = self._learns[number], self._rates[number]

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

    def steps(self) -> int:
        """Return the number of batches per epoch."""
        return self._training.steps(self._batch)

    def batches(self, epoch: int) -> list[Batch]:
        """Return the batches of an epoch."""
        return self._training.batches(self._seed, epoch, self._batch)

    def loss(self, batch: Batch, generator: torch.Generator) -> Loss:
        """Return the losses of concepts and tags, as far as the running phase learns them."""
        part = self._processes.partition(len(batch))
        positions = batch.positions[part]
        dropout = self._draw_dropout(batch, part, generator)
        if len(positions):
            found = self._losses(positions, dropout)
            terms = {name: each / len(batch) for name, each in found.items()}
        else:  # a batch of fewer images than there are processes
            zero = torch.zeros((), device=self.describer.device)
            terms = {name: zero.clone().requires_grad_() for name in self._terms()}
        weights = {name: 1.0 if name == "tags" else self._concept_weight for name in terms}
        total = torch.stack([weights[name] * each for name, each in terms.items()]).sum()
        # Every process has its own part of the sums; the history has the whole.
        whole = torch.stack([each.detach() for each in terms.values()])
        self._processes.add(whole)
        # The trainer adds up values of batches and divides by the number of images.
        values = {name: each * len(batch) for name, each in zip(terms, whole, strict=True)}
        value = torch.stack([weights[name] * each for name, each in values.items()]).sum()
        return Loss(total, value, values)

    def validate(self) -> Scores:
        """Tag the validation images."""
        self.trained.eval()
        return validate(self.describer, self._validation, self._now)

    def warning(self, phase: int, points: Sequence[Point]) -> str | None:
        """Detect a tagger that writes the same tags for all images."""
        if self._learns[phase] == "recognizer":
            return None
        return collapse_warning(points, len(self._validation))

    def _terms(self) -> list[str]:
        """Return the names of the losses that the running phase learns from."""
        concepts = self._concept_loss is not None and self._now != "decoder"
        hints = concepts and self.describer.hint_reader is not None and self._now in _SEPARATE
        return [*["concepts"] * concepts, *["hints"] * hints, *["tags"] * (self._now != "recognizer")]

    def _losses(self, positions: np.ndarray, dropout: Dropout | None) -> dict[str, Tensor]:
        """Return the sums of the losses over some images, by name."""
        describer, data, terms = self.describer, self._training, self._terms()
        device = describer.device
        rows, truth = data.images(positions).to(device), data.truth(positions).to(device)
        hints = data.read_hints(positions)
        with torch.no_grad() if self._now == "decoder" else nullcontext():
            seen = describer.see(rows, None if hints is None else hints.to(device))
        found: dict[str, Tensor] = {}
        if self._concept_loss is not None and "concepts" in terms:
            logits = seen.image_logits if self._now in _SEPARATE else seen.logits
            assert logits is not None, "settings with a loss of concepts have a recognizer"
            found["concepts"] = self._concept_loss(logits, truth).sum()
            if "hints" in terms and seen.hint_logits is not None:
                found["hints"] = self._concept_loss(seen.hint_logits, truth).sum()
        if "tags" in terms:
            conditions = truth if self._now == "apart" else describer.condition(seen)
            found["tags"] = self._tag_losses(conditions, positions, dropout).sum()
        return found

    def _tag_losses(self, conditions: Tensor, positions: np.ndarray, dropout: Dropout | None) -> Tensor:
        """Return the loss of every tag and END of some images (positions)."""
        decoder = self.describer.decoder
        assert decoder is not None, "settings with such a phase have a decoder"
        padded, lengths = self._training.tags(positions)
        targets = pack(padded.to(conditions.device), lengths)
        states = decoder.hidden_states(conditions, targets, dropout)
        return word_losses(states, decoder.output.weight, decoder.output.bias, targets.data)

    def _draw_dropout(self, batch: Batch, part: slice, generator: torch.Generator) -> Dropout | None:
        """Draw the dropout of the whole batch; return that of the images of this process."""
        if self._dropout == 0 or self._now == "recognizer":
            return None
        shape = self.describer.shape
        longest = max(len(self._training.sequences[position]) for position in batch.positions)
        drawn = draw_dropout(len(batch), longest, shape.word_dim, shape.units, self._dropout, generator)
        # A process pads its own images only as far as they need.
        own = max((len(self._training.sequences[position]) for position in batch.positions[part]), default=0)
        return Dropout(*(each[part, :own].to(self.describer.device) for each in drawn))
