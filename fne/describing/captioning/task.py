"""The captioning task: a recognizer of concepts and a decoder of words, trained separately or together.

`fne.describing.task` has the phases and the losses. An item of a batch is a caption.
"""

from collections.abc import Sequence
from contextlib import nullcontext

import numpy as np
import torch
from torch import Tensor

from fne.core.processes import ALONE, Processes
from fne.describing.beam import search
from fne.describing.captioning.data import CaptionBatch, Examples
from fne.describing.decoder import Dropout, pad
from fne.describing.model import Describer
from fne.describing.sequence_loss import perplexity
from fne.describing.task import DescriberTask, Objective
from fne.evaluation.metrics.caption_metrics import COLLAPSED, bleu, cider_d
from fne.text.caption_vocabulary import END, UNKNOWN, CaptionWords
from fne.training.best_epoch import Point, Scores

BLOCK = 256  # images or captions computed at once in validation
IN_A_ROW = 2  # validations with (nearly) one caption for all images before it is reported


class CaptioningTask(DescriberTask[CaptionBatch]):
    """Learns to write captions; validated by the captions that it writes."""

    section = "train_captioner"
    sequences = "words"
    memory_hint = "lower train_captioner.batch, train_captioner.units or train_captioner.word_dim"

    def __init__(
        self,
        captioner: Describer,
        objective: Objective,
        words: CaptionWords,
        training: Examples,
        validation: Examples,
        *,
        seed: int,
        batch: int,
        captions: str,
        max_length: int,
        select: str,
        validation_images: int,
        validation_beam: int,
        processes: Processes = ALONE,
    ) -> None:
        """Make a task.

        Args:
            captioner: the model, with fresh weights.
            objective: what each phase learns.
            words: the words that it writes.
            training: what it learns from.
            validation: what it is validated with.
            seed: of the order of the captions.
            batch: captions per step.
            captions: a key of `fne.describing.captioning.data.DRAWS`.
            max_length: the most words of a caption.
            select: the validation score that chooses the best weights.
            validation_images: how many images are validated at most; 0 for all.
            validation_beam: the number of hypotheses in validation.
            processes: the processes that train together.
        """
        if captioner.decoder is None:
            raise ValueError("a captioner needs a decoder")
        super().__init__(captioner, objective, processes)
        self._words, self._training, self._validation = words, training, validation
        self._seed, self._batch, self._captions = seed, batch, captions
        self._max_length, self._select, self._beam = max_length, select, validation_beam
        count = min(validation_images or len(validation), len(validation))
        # Spread evenly over the split, whose order may follow the file names.
        self._validated = np.linspace(0, len(validation) - 1, count).round().astype(int).tolist()

    def steps(self) -> int:
        """Return the number of batches per epoch."""
        return self._training.steps(self._batch, self._captions)

    def batches(self, epoch: int) -> list[CaptionBatch]:
        """Return the batches of an epoch."""
        return self._training.batches(self._seed, epoch, self._batch, self._captions)

    @torch.no_grad()
    def validate(self) -> Scores:
        """Write captions for validation images and score them.

        A phase that learns only the recognizer is judged by the loss of the concepts. Minus that loss is
        below every score of captions, so that the phases after it decide which weights are the best.
        """
        captioner, positions = self.describer, self._validated
        captioner.eval()
        condition_blocks, losses = [], []
        for start in range(0, len(positions), BLOCK):
            part = positions[start : start + BLOCK]
            seen = captioner.see(self._validation.images(part).to(captioner.device))
            condition_blocks.append(captioner.condition(seen))
            if self._concept_loss is not None and seen.logits is not None:
                labels = torch.from_numpy(self._validation.labels[part]).to(captioner.device)
                losses.append(self._concept_loss(seen.logits, labels))
        concepts = {"concept_loss": torch.cat(losses).mean().item()} if losses else {}
        if self._now == "recognizer":
            return Scores({"minus_concept_loss": -concepts["concept_loss"]} | concepts)
        conditions = torch.cat(condition_blocks)
        written = search(
            self.decoder.prepared(),
            conditions,
            beam=self._beam,
            max_length=self._max_length,
            end=END,
            never=[UNKNOWN],
        )
        candidates = {
            self._validation.ids[position]: self._words.decode(hypotheses[0].words)
            for position, hypotheses in zip(positions, written, strict=True)
        }
        references = {image: self._validation.references[image] for image in candidates}
        mean_loss = self._word_loss(conditions)
        values = {
            "CIDEr-D": cider_d(candidates, references).score,
            "BLEU-4": bleu(candidates, references).score[3],
            "word_probability": float(np.exp(-mean_loss)),
            "perplexity": perplexity(mean_loss, 1),
            "distinct_captions": len(set(candidates.values())) / len(candidates),
        } | concepts
        return Scores({self._select: values[self._select]} | values)

    def warning(self, phase: int, points: Sequence[Point]) -> str | None:
        """Detect a captioner that writes the same for (nearly) all images."""
        recent = [point.scores.values.get("distinct_captions", 1.0) for point in points[-IN_A_ROW:]]
        fewest = max(1 / len(self._validated), COLLAPSED)
        if len(recent) < IN_A_ROW or max(recent) > fewest:
            return None
        count = round(recent[-1] * len(self._validated))
        return (
            f"the captioner ignores the images: {count} different caption{'s' if count > 1 else ''} for "
            f"{len(self._validated)} validation images; let it train longer, use "
            "train_captioner.rows=standardized, or try another train_captioner.learning_rate"
        )

    def losses(self, batch: CaptionBatch, dropout: Dropout | None) -> dict[str, Tensor]:
        """Return the sums of the losses over some captions, by name."""
        captioner, terms = self.describer, self.terms()
        different, owners = np.unique(batch.images, return_inverse=True)
        rows = self._training.images(different).to(captioner.device)
        owner = torch.from_numpy(owners.reshape(-1)).to(captioner.device)
        with torch.no_grad() if self._now == "decoder" else nullcontext():
            seen = captioner.see(rows)
        found: dict[str, Tensor] = {}
        labels = torch.from_numpy(self._training.labels[different]).to(captioner.device)
        if "concepts" in terms and self._concept_loss is not None and seen.logits is not None:
            found["concepts"] = self._concept_loss(seen.logits, labels)[owner].sum()
        if "words" in terms:
            conditions = labels.to(rows.dtype) if self._now == "apart" else captioner.condition(seen)
            found["words"] = self.sequence_losses(conditions[owner], *pad(batch.sequences()), dropout).sum()
        return found

    def _word_loss(self, conditions: Tensor) -> float:
        """Return the mean loss per word of the captions of the validated images, ends included."""
        every = self._validation.every_caption(self._validated)
        owner = np.repeat(np.arange(len(self._validated)), self._validation.caption_counts[self._validated])
        total, words = 0.0, 0
        for start in range(0, len(every), BLOCK):
            part = slice(start, start + BLOCK)
            padded = pad(every.part(part).sequences())
            losses = self.sequence_losses(conditions[owner[part]], *padded, None)
            total, words = total + losses.sum().item(), words + len(losses)
        return total / words


def summary(best: Point, images: int) -> str:
    """Describe the validation of the weights that training kept."""
    values = best.scores.values
    text = (
        f"best epoch {best.epoch} (phase {best.phase}): validation CIDEr-D {values['CIDEr-D']:.3f}, "
        f"BLEU-4 {values['BLEU-4']:.3f}, perplexity {values['perplexity']:.1f}, "
        f"{values['distinct_captions']:.0%} distinct captions"
    )
    collapsed = values["distinct_captions"] <= max(1 / images, COLLAPSED)
    return f"{text}; the captioner writes the same for (nearly) all images" if collapsed else text
