"""The captioning task: a recognizer of concepts and a decoder of words, apart or together.

What a phase learns:

- `recognizer`: the recognizer, from the true concepts.
- `apart`: the recognizer from the true concepts, and the decoder with the TRUE concepts as its
  condition. No gradient of one reaches the other.
- `decoder`: the decoder, with what the recognizer predicts; the recognizer is held.
- `joint`: both, with the sum of both losses. Gradients of the words reach the recognizer.

The loss of the concepts is summed over concepts, that of the words over the words of a caption. Both are
averaged over the captions of a batch.
"""

from collections.abc import Sequence
from contextlib import nullcontext

import numpy as np
import torch
from torch import Tensor, nn

from fne.core.processes import ALONE, Processes
from fne.losses.multilabel import MultilabelLoss
from fne.losses.sequence import perplexity, word_losses
from fne.metrics.captions import COLLAPSED, bleu, cider_d
from fne.models.decoders.beam import search
from fne.models.decoders.decoder import Decoder, Dropout, draw_dropout, pack
from fne.models.describer import Describer
from fne.tasks.captioning.data import Batch, Examples
from fne.text.caption_vocabulary import END, UNKNOWN, CaptionWords
from fne.training.progress import Point, Scores
from fne.training.task import Loss, ParameterGroup

BLOCK = 256  # images or captions computed at once in validation
IN_A_ROW = 2  # validations with (nearly) one caption for all images before it is reported


class CaptioningTask:
    """Learns to write captions; validated by the captions that it writes."""

    section = "train_captioner"
    memory_hint = "lower train_captioner.batch, train_captioner.units or train_captioner.word_dim"

    def __init__(
        self,
        captioner: Describer,
        words: CaptionWords,
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
            words: the words that it writes.
            training: what it learns from.
            validation: what it is judged by.
            learns: what each phase learns.
            recognizer_rates: the rate of the recognizer in each phase, by that of the decoder.
            concept_loss: of the recognizer, per image; None trains it through the words alone.
            concept_weight: of that loss.
            dropout: the fraction of words and of states before the output that is dropped.
            seed: of the order of the captions.
            batch: captions per step.
            captions: a key of `fne.tasks.captioning.data.DRAWS`.
            max_length: the most words of a caption.
            select: the validation score that chooses the best weights.
            validation_images: how many images are validated at most; 0 for all.
            validation_beam: the number of hypotheses in validation.
            processes: the processes that train together.
        """
        if captioner.decoder is None:
            raise ValueError("a captioner needs a decoder")
        self.captioner = captioner
        self.decoder: Decoder = captioner.decoder
        self.trained = nn.ModuleDict({"model": captioner})
        self._words, self._training, self._validation = words, training, validation
        self._learns, self._rates = learns, recognizer_rates
        self._concept_loss, self._concept_weight = concept_loss, concept_weight
        self._dropout, self._seed, self._batch, self._captions = dropout, seed, batch, captions
        self._max_length, self._select = max_length, select
        self._beam = validation_beam
        self._processes = processes
        count = min(validation_images or len(validation), len(validation))
        # Spread evenly over the split, whose order may follow the file names.
        self._validated = np.linspace(0, len(validation) - 1, count).round().astype(int).tolist()
        self.start_phase(0)

    def start_phase(self, number: int) -> None:
        """Use the losses of a phase."""
        self._now, self._rate = self._learns[number], self._rates[number]

    def parameter_groups(self) -> list[ParameterGroup]:
        """Return what the running phase trains: the decoder and the recognizer have rates of their own."""
        recognizer = [] if self.captioner.recognizer is None else list(self.captioner.recognizer.parameters())
        groups = []
        if self._now != "recognizer":
            groups.append(ParameterGroup("decoder", list(self.decoder.parameters())))
        if self._now != "decoder" and recognizer:
            groups.append(ParameterGroup("recognizer", recognizer, self._rate))
        return groups

    def steps(self) -> int:
        """Return the number of batches per epoch."""
        return self._training.steps(self._batch, self._captions)

    def batches(self, epoch: int) -> list[Batch]:
        """Return the batches of an epoch."""
        return self._training.batches(self._seed, epoch, self._batch, self._captions)

    def loss(self, batch: Batch, generator: torch.Generator) -> Loss:
        """Return the losses of concepts and words, as far as the running phase learns them."""
        part = self._processes.partition(len(batch))
        images, captions = batch.images[part], batch.captions[part]
        dropout = self._draw_dropout(batch, part, generator)
        if not len(images):  # a batch of fewer captions than there are processes
            nothing = torch.zeros((), device=self.captioner.device)
            terms = {name: nothing.clone().requires_grad_() for name in self._terms()}
        else:
            terms = {
                name: each / len(batch) for name, each in self._losses(images, captions, dropout).items()
            }
        weights = {"concepts": self._concept_weight, "words": 1.0}
        total = torch.stack([weights[name] * each for name, each in terms.items()]).sum()
        # Every process has its own part of the sums; the history has the whole.
        whole = torch.stack([each.detach() for each in terms.values()])
        self._processes.add(whole)
        values = dict(zip(terms, whole, strict=True))
        value = torch.stack([weights[name] * each for name, each in values.items()]).sum()
        # The trainer adds up values of batches and divides by the number of captions.
        return Loss(total, value * len(batch), {name: each * len(batch) for name, each in values.items()})

    @torch.no_grad()
    def validate(self) -> Scores:
        """Write captions for validation images and score them.

        A phase that learns only the recognizer is judged by the loss of the concepts. Minus that loss is
        below every score of captions, so that the phases after it decide which weights are the best.
        """
        captioner, positions = self.captioner, self._validated
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

    def _terms(self) -> list[str]:
        learns_concepts = self._concept_loss is not None and self._now != "decoder"
        return [*["concepts"] * learns_concepts, *["words"] * (self._now != "recognizer")]

    def _losses(self, images: np.ndarray, captions: np.ndarray, dropout: Dropout | None) -> dict[str, Tensor]:
        """Return the sums of the losses over some captions, by name."""
        captioner, terms = self.captioner, self._terms()
        different, owners = np.unique(images, return_inverse=True)
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
            padded, lengths = self._training.captions(images, captions)
            found["words"] = self._sequence_losses(conditions[owner], padded, lengths, dropout).sum()
        return found

    def _sequence_losses(
        self, conditions: Tensor, padded: Tensor, lengths: Tensor, dropout: Dropout | None
    ) -> Tensor:
        """Return the loss of every word of some captions (positions)."""
        decoder = self.decoder
        targets = pack(padded.to(conditions.device), lengths)
        states = decoder.hidden_states(conditions, targets, dropout)
        return word_losses(states, decoder.output.weight, decoder.output.bias, targets.data)

    def _draw_dropout(self, batch: Batch, part: slice, generator: torch.Generator) -> Dropout | None:
        """Draw the dropout of the whole batch; return that of the captions of this process."""
        if self._dropout == 0 or self._now == "recognizer":
            return None
        shape, device = self.captioner.shape, self.captioner.device
        lengths = [
            len(self._training.sequences[image][caption])
            for image, caption in zip(batch.images, batch.captions, strict=True)
        ]
        drawn = draw_dropout(len(batch), max(lengths), shape.word_dim, shape.units, self._dropout, generator)
        return Dropout(*(each[part].to(device) for each in drawn))

    def _word_loss(self, conditions: Tensor) -> float:
        """Return the mean loss per word of the captions of the validated images, ends included."""
        images, captions = self._validation.every_caption(self._validated)
        owner = np.repeat(np.arange(len(self._validated)), self._validation.caption_counts[self._validated])
        total, words = 0.0, 0
        for start in range(0, len(images), BLOCK):
            part = slice(start, start + BLOCK)
            padded, lengths = self._validation.captions(images[part], captions[part])
            losses = self._sequence_losses(conditions[owner[part]], padded, lengths, None)
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
