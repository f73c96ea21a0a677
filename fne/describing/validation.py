"""The validation of a tagger and of a captioner, and the detection of one that ignores the images.

A phase that learns only the concept head is scored below all phases that write, so that the phases after it
decide which weights are the best.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from fne.describing.beam import search
from fne.describing.data import Examples, spread_evenly
from fne.describing.losses import MultilabelLoss, perplexity
from fne.describing.model import DescribingModel
from fne.describing.settings import SELECT, TrainCaptioner
from fne.describing.write import Tags, join_words, tag_search, write_block, written_mask
from fne.evaluation.metrics.caption_metrics import COLLAPSED, bleu, cider_d
from fne.evaluation.metrics.tag_metrics import label_metrics, mean_average_precision, top_k
from fne.text.caption_vocabulary import END, UNKNOWN, CaptionWords
from fne.training.best_epoch import Point, Scores

BLOCK = 256  # images or captions computed at once
# How many of the likeliest concepts are the answer of a tagger without a decoder.
LIKELIEST = 3
# Validations with (nearly) the same words for all images before it is reported.
TAGS_IN_A_ROW, CAPTIONS_IN_A_ROW = 5, 2


class Validation(Protocol):
    """How good a model is on the validation images."""

    @property
    def images(self) -> int:
        """How many images are seen."""

    def scores(self, model: DescribingModel, learns: str) -> Scores:
        """Return the scores in a phase that learns something; the first one chooses the best weights."""

    def warning(self, learns: str, points: Sequence[Point]) -> str | None:
        """Return what is wrong with a phase, if its points show it."""

    def summary(self, best: Point) -> str:
        """Describe the validation of the weights that training kept."""


class TagValidation:
    """Scores tags by F1: the best weights have the highest sum of `class_f1` and `image_f1` of written tags.

    A tagger that writes none answers with its likeliest concepts, and its best weights are those with the
    highest mean average precision.
    """

    def __init__(self, examples: Examples) -> None:
        self._examples = examples
        self.images = len(examples)

    def scores(self, model: DescribingModel, learns: str) -> Scores:
        """Tag all images and score the tags."""
        labels, found = self._examples.labels, tag_examples(model, self._examples)
        ranked = {}
        if found.probabilities is not None:
            ranked["mAP"] = mean_average_precision(found.probabilities, labels)
        if found.written is not None:
            mask = written_mask(found.written, labels.shape[1])
        else:
            assert found.probabilities is not None, "a tagger has a concept head, a decoder or both"
            mask = top_k(found.probabilities, LIKELIEST)
        scores = label_metrics(mask, labels)
        values = {"f1_sum": scores["class_f1"] + scores["image_f1"]}
        values |= {name: scores[name] for name in ("class_f1", "image_f1", "pooled_f1", "predicted_length")}
        values |= {"distinct": float(len(np.unique(mask, axis=0)))} | ranked
        if found.written is None:
            return Scores(ranked | values)
        return Scores({"mAP_below_100": ranked["mAP"] - 100} | values if learns == "concept_head" else values)

    def warning(self, learns: str, points: Sequence[Point]) -> str | None:
        """Detect a tagger that writes the same tags for all images."""
        recent = [point.scores.values["distinct"] for point in points[-TAGS_IN_A_ROW:]]
        images = len(self._examples)
        if learns == "concept_head" or images < 2 or len(recent) < TAGS_IN_A_ROW or max(recent) > 1:
            return None
        return f"the tagger ignores the images: it writes the same tags for all {images} validation images"

    def summary(self, best: Point) -> str:
        """Describe the validation of the weights that training kept."""
        values = best.scores.values
        ranked = f"mAP {values['mAP']:.1f}, " if "mAP" in values else ""
        return (
            f"best epoch {best.epoch} (phase {best.phase}): validation {ranked}"
            f"F1 per class {values['class_f1']:.1f}, per image {values['image_f1']:.1f}, "
            f"pooled {values['pooled_f1']:.1f}, {values['predicted_length']:.1f} tags per image"
        )


class CaptionValidation:
    """Scores the captions of some images, which are spread evenly over the split.

    A phase that learns only the concept head is judged by minus the loss of the concepts.
    """

    def __init__(
        self,
        examples: Examples,
        words: CaptionWords,
        settings: TrainCaptioner,
        concept_loss: MultilabelLoss | None,
    ) -> None:
        self._examples, self._words, self._concept_loss = examples, words, concept_loss
        self._select, self._beam = SELECT[settings.select], settings.validation_beam
        self._max_length = settings.max_length
        self.positions = spread_evenly(len(examples), settings.validation_images)
        self.images = len(self.positions)

    @torch.no_grad()
    def scores(self, model: DescribingModel, learns: str) -> Scores:
        """Write captions and score them."""
        condition_blocks, losses = [], []
        for start in range(0, len(self.positions), BLOCK):
            part = self.positions[start : start + BLOCK]
            seen = model.see(self._examples.images(part).to(model.device))
            condition_blocks.append(model.condition(seen))
            if self._concept_loss is not None and seen.logits is not None:
                truth = self._examples.truth(part).to(model.device)
                losses.append(self._concept_loss(seen.logits, truth))
        concepts = {"concept_loss": torch.cat(losses).mean().item()} if losses else {}
        if learns == "concept_head":
            return Scores({"minus_concept_loss": -concepts["concept_loss"]} | concepts)
        conditions = torch.cat(condition_blocks)
        candidates = self._candidates(model, conditions)
        references = {image: self._examples.references[image] for image in candidates}
        mean_loss = self._word_loss(model, conditions)
        values = {
            "CIDEr-D": cider_d(candidates, references).score,
            "BLEU-4": bleu(candidates, references).score[3],
            "word_probability": float(np.exp(-mean_loss)),
            "perplexity": perplexity(mean_loss, 1),
            "distinct_captions": len(set(candidates.values())) / len(candidates),
        } | concepts
        return Scores({self._select: values[self._select]} | values)

    def warning(self, learns: str, points: Sequence[Point]) -> str | None:
        """Detect a captioner that writes the same for (nearly) all images."""
        recent = [point.scores.values.get("distinct_captions", 1.0) for point in points[-CAPTIONS_IN_A_ROW:]]
        if len(recent) < CAPTIONS_IN_A_ROW or max(recent) > self._fewest:
            return None
        count = round(recent[-1] * len(self.positions))
        return (
            f"the captioner ignores the images: {count} different caption{'s' if count > 1 else ''} for "
            f"{len(self.positions)} validation images"
        )

    def summary(self, best: Point) -> str:
        """Describe the validation of the weights that training kept."""
        values = best.scores.values
        text = (
            f"best epoch {best.epoch} (phase {best.phase}): validation CIDEr-D {values['CIDEr-D']:.3f}, "
            f"BLEU-4 {values['BLEU-4']:.3f}, perplexity {values['perplexity']:.1f}, "
            f"{values['distinct_captions']:.0%} distinct captions"
        )
        collapsed = values["distinct_captions"] <= self._fewest
        return f"{text}; the captioner writes the same for (nearly) all images" if collapsed else text

    @property
    def _fewest(self) -> float:
        """The fraction of distinct captions of a captioner that ignores the images."""
        return max(1 / len(self.positions), COLLAPSED)

    def _candidates(self, model: DescribingModel, conditions: Tensor) -> dict[str, str]:
        """Return the caption that is written for each image."""
        assert model.decoder is not None, "a captioner has a decoder"
        decoder = model.decoder.prepared()
        beam, longest = self._beam, self._max_length
        written = search(decoder, conditions, beam=beam, max_length=longest, end=END, never=[UNKNOWN])
        return {
            self._examples.ids[position]: self._words.decode(hypotheses[0].words)
            for position, hypotheses in zip(self.positions, written, strict=True)
        }

    def _word_loss(self, model: DescribingModel, conditions: Tensor) -> float:
        """Return the mean loss per word of the captions of the validated images, ends included."""
        assert model.decoder is not None, "a captioner has a decoder"
        every = self._examples.every_sequence(self.positions)
        owner = np.repeat(np.arange(len(self.positions)), self._examples.counts[self.positions])
        total, words = 0.0, 0
        for start in range(0, len(every), BLOCK):
            part = slice(start, start + BLOCK)
            losses = model.decoder.losses(conditions[owner[part]], every.part(part).sequences())
            total, words = total + losses.sum().item(), words + len(losses)
        return total / words


def tag_examples(model: DescribingModel, examples: Examples) -> Tags:
    """Tag all images of a split, block by block."""
    decoder = None if model.decoder is None else model.decoder.prepared()
    how = tag_search(model)
    parts = [
        write_block(model, decoder, examples.images(block), examples.read_user_tags(block), how)
        for block in np.array_split(np.arange(len(examples)), -(-len(examples) // BLOCK))
    ]
    return join_words(parts).as_tags()
