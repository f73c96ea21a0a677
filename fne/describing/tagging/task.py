"""The tagging task: a recognizer of concepts and a decoder of tags, trained separately or together.

`fne.describing.task` has the phases and the losses. An item of a batch is an image.
"""

from collections.abc import Sequence
from contextlib import nullcontext

import torch
from torch import Tensor

from fne.core.processes import ALONE, Processes
from fne.describing.decoder import Dropout, pad
from fne.describing.model import Describer
from fne.describing.tagging.data import Examples, TagBatch
from fne.describing.task import SEPARATE, DescriberTask, Objective
from fne.describing.validation import collapse_warning, validate
from fne.training.best_epoch import Point, Scores


class TaggingTask(DescriberTask[TagBatch]):
    """Learns to tag; validated by the tags that it writes, or by its concepts if it writes none."""

    section = "train_tagger"
    sequences = "tags"
    memory_hint = "lower train_tagger.batch, train_tagger.units or train_tagger.word_dim"

    def __init__(
        self,
        describer: Describer,
        objective: Objective,
        training: Examples,
        validation: Examples,
        *,
        seed: int,
        batch: int,
        processes: Processes = ALONE,
    ) -> None:
        """Make a task.

        Args:
            describer: the tagger, with fresh weights.
            objective: what each phase learns.
            training: what it learns from.
            validation: what it is validated with.
            seed: of the order of the images.
            batch: images per step.
            processes: the processes that train together.
        """
        super().__init__(describer, objective, processes)
        self._training, self._validation = training, validation
        self._seed, self._batch = seed, batch

    def steps(self) -> int:
        """Return the number of batches per epoch."""
        return self._training.steps(self._batch)

    def batches(self, epoch: int) -> list[TagBatch]:
        """Return the batches of an epoch."""
        return self._training.batches(self._seed, epoch, self._batch)

    def validate(self) -> Scores:
        """Tag the validation images."""
        self.trained.eval()
        return validate(self.describer, self._validation, self._now)

    def warning(self, phase: int, points: Sequence[Point]) -> str | None:
        """Detect a tagger that writes the same tags for all images."""
        if self._objective.learns[phase] == "recognizer":
            return None
        return collapse_warning(points, len(self._validation))

    def losses(self, batch: TagBatch, dropout: Dropout | None) -> dict[str, Tensor]:
        """Return the sums of the losses over some images, by name."""
        describer, data, positions, terms = self.describer, self._training, batch.positions, self.terms()
        device = describer.device
        rows, truth = data.images(positions).to(device), data.truth(positions).to(device)
        hints = data.read_hints(positions)
        with torch.no_grad() if self._now == "decoder" else nullcontext():
            seen = describer.see(rows, None if hints is None else hints.to(device))
        found: dict[str, Tensor] = {}
        if self._concept_loss is not None and "concepts" in terms:
            logits = seen.image_logits if self._now in SEPARATE else seen.logits
            assert logits is not None, "settings with a loss of concepts have a recognizer"
            found["concepts"] = self._concept_loss(logits, truth).sum()
            if "hints" in terms and seen.hint_logits is not None:
                found["hints"] = self._concept_loss(seen.hint_logits, truth).sum()
        if "tags" in terms:
            conditions = truth if self._now == "apart" else describer.condition(seen)
            found["tags"] = self.sequence_losses(conditions, *pad(batch.sequences()), dropout).sum()
        return found
