"""The task of fine-tuning: image network, image head, text encoder and classifier learn together.

The objective is that of the dual-path paper's second stage, a weighted sum of a ranking loss and of the
instance losses of images and captions. Half of a batch's images are anchors, each with one of its captions.
The wrong caption of an anchor is the nearest of some candidates, found in test mode. The wrong image of an
anchor's caption is an image of the other half. All images and captions of the batch have a class, a mined
caption that of its own image.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor, nn

from fne.core.distributed_layers import Step
from fne.core.errors import InputError
from fne.core.processes import ALONE, Processes
from fne.evaluation.metrics.ranks import rank
from fne.evaluation.metrics.recall import retrieval_values
from fne.extraction.preprocess import InputFormat, normalize
from fne.finetuning.data import Captions, CropBatch, CropStream, RandomCrops
from fne.finetuning.tuned_network import BIASES, FIRST, GAINS, WEIGHTS, TunedNetwork
from fne.matching.instance_loss import Classes
from fne.matching.model import Matcher, parameter_kinds
from fne.training.best_epoch import Point, Scores
from fne.training.task import Loss, ParameterGroup

BLOCK = 256  # captions that are encoded at once, outside of training steps
# The names of the terms in the history.
RANKING, IMAGE_CLASSES, TEXT_CLASSES = "ranking", "image_classes", "text_classes"


@dataclass(frozen=True)
class Objective:
    """What is minimized; a term of weight 0 is not computed."""

    margin: float
    rank: float
    image_classes: float
    text_classes: float

    @property
    def has_instance_loss(self) -> bool:
        """Whether the classifier is used."""
        return bool(self.image_classes or self.text_classes)


@dataclass(frozen=True)
class Rates:
    """Factors on the learning rate, by the kind of weights.

    Attributes:
        network: of the weights, biases and gains of the network, and of its first convolution.
        words: of the word vectors.
        gains: of the gains of batch normalization in the head and the encoder.
        classifier: of the classifier.
        classifier_bias: a further factor for its bias.
    """

    network: dict[str, float]
    words: float = 1.0
    gains: float = 1.0
    classifier: float = 1.0
    classifier_bias: float = 1.0


@dataclass(frozen=True)
class Images:
    """Where images come from.

    Attributes:
        crops: random ones of the training images.
        views: yields the center crop (channels, height, width) of each image, in bytes, given ids.
        input: how the network expects images.
        workers: the processes that read.
    """

    crops: RandomCrops
    views: Callable[[Sequence[str]], Iterator[Tensor]]
    input: InputFormat
    workers: int


class FinetuningTask:
    """Learns from pixels and captions; validated by the sum of six recalls."""

    section = "finetune"
    memory_hint = "lower runtime.batch or finetune.batch, or train fewer layers with finetune.first"

    def __init__(
        self,
        network: TunedNetwork,
        matcher: Matcher,
        classes: Classes | None,
        objective: Objective,
        rates: Rates,
        training: Captions,
        validation: Captions,
        images: Images,
        seed: int,
        batch: int,
        candidates: int,
        rectified: bool,
        processes: Processes = ALONE,
    ) -> None:
        self.network, self.matcher, self.classes = network, matcher, classes
        losses = {"instance": classes.loss} if classes else {}
        self.trained = nn.ModuleDict({"network": network, "model": matcher, "losses": nn.ModuleDict(losses)})
        self._objective, self._rates = objective, rates
        self._training, self._validation = training, validation
        self._images = images
        self._batch, self._rectified, self._processes = batch, rectified, processes
        # The reader ahead and the trainer ask for the same epochs.
        self.batches = lru_cache(maxsize=2)(lambda epoch: training.batches(seed, epoch, batch, candidates))
        self._stream = CropStream(
            images.crops, self.batches, processes.partition, images.workers, matcher.device.type == "cuda"
        )

    def start_phase(self, number: int) -> None:
        """Do nothing: phases differ in their rates only."""

    def parameter_groups(self) -> list[ParameterGroup]:
        """Return what is trained; frozen layers and fixed words are left out."""
        rates = self._rates
        groups = [
            ParameterGroup(f"network_{kind}", own, rates.network[kind])
            for kind, own in self.network.trained_kinds().items()
        ]
        by_kind = {"words": rates.words, "gains": rates.gains, "weights": 1.0}
        kinds = parameter_kinds(self.matcher)
        trained = [each for each in self.matcher.parameters() if each.requires_grad]
        groups += [
            ParameterGroup(kind, [each for each in trained if kinds.get(id(each), "weights") == kind], factor)
            for kind, factor in by_kind.items()
        ]
        if self.classes is not None and self._objective.has_instance_loss:
            loss = self.classes.loss
            groups.append(ParameterGroup("classifier", [loss.weight], rates.classifier))
            if loss.bias is not None:
                factor = rates.classifier * rates.classifier_bias
                groups.append(ParameterGroup("classifier_bias", [loss.bias], factor))
        return [group for group in groups if group.parameters]

    def steps(self) -> int:
        """Return the number of batches per epoch."""
        return self._training.steps(self._batch)

    def loss(self, batch: CropBatch, generator: torch.Generator) -> Loss:
        """Return the objective of a batch; the gradient of the network is computed part by part."""
        return self.loss_of(batch, self._stream.read(batch), generator)

    def loss_of(self, batch: CropBatch, pixels: Tensor, generator: torch.Generator) -> Loss:
        """Return the objective of a batch, given the crops of this process's images, in bytes."""
        part = self._processes.partition(len(batch))
        step = Step(generator, len(batch), part, self._processes)
        rows = self.network(self._prepared(pixels))  # (own, features)
        caption_ids = [*batch.caption_ids, *self.mine(batch, rows.detach())]
        words, lengths = self._training.words(caption_ids[part])
        images = self.matcher.image_head(rows, step)
        captions = self.matcher.text_encoder(words.to(self.matcher.device), lengths, step)
        objective, weighted = self._objective, list[tuple[str, float, Tensor, Tensor]]()
        if objective.rank:
            scores = self.matcher.similarity(
                *(self._processes.gather(self._unit(each)) for each in (images, captions))
            )
            ranking = rank_mined(scores, objective.margin)
            weighted.append((RANKING, objective.rank, ranking, ranking.detach()))
        for name, weight, outputs, owners in (
            (IMAGE_CLASSES, objective.image_classes, images, batch.image_ids),
            (TEXT_CLASSES, objective.text_classes, captions, map(self._training.owners.get, caption_ids)),
        ):
            if weight and self.classes is not None:
                labels = [self.classes.labels[str(each)] for each in owners][part]
                own = self.classes.loss(
                    outputs, torch.tensor(labels, dtype=torch.int64).to(outputs.device), step
                )
                mean = own.detach().clone()
                self._processes.add(mean)
                weighted.append((name, weight, own, mean))
        # The history divides by the number of images, but these are means.
        value = torch.stack([weight * mean for _, weight, _, mean in weighted]).sum() * len(batch)
        terms = {name: mean * len(batch) for name, _, _, mean in weighted}
        return Loss(torch.stack([weight * own for _, weight, own, _ in weighted]).sum(), value, terms)

    @torch.no_grad()
    def mine(self, batch: CropBatch, rows: Tensor) -> list[str]:
        """Return the candidate that is nearest to each anchor, with the model in test mode.

        Args:
            batch: the batch.
            rows: of this process's images (images, features).
        """
        was_training = self.matcher.training
        self.matcher.eval()
        try:
            images = self._processes.gather(self._unit(self.matcher.image_head(rows, None)))
            anchors = images[: len(batch.caption_ids)]
            nearest = self.matcher.similarity(anchors, self._encode(batch.candidates)).argmax(dim=1)
        finally:
            self.matcher.train(was_training)
        return [batch.candidates[position] for position in nearest.tolist()]

    @torch.no_grad()
    def validate(self) -> Scores:
        """Rank the validation images, of which the center is seen, and their captions."""
        self.matcher.eval()
        ids = self._validation.image_ids
        own = ids[self._processes.partition(len(ids))]
        vectors = [
            self.matcher.embed_images(self.network(self._prepared(pixels)))
            for pixels in _stacked(self._images.views(own), self.network.part)
        ]
        nothing = torch.zeros((0, self.matcher.shape.embed_dim), device=self.matcher.device)
        images = self._processes.gather(torch.cat([nothing, *vectors]).cpu())
        captions = torch.cat(
            [
                self.matcher.embed_captions(words.to(self.matcher.device), lengths).cpu()
                for words, lengths in self._blocks(self._validation, self._validation.caption_ids)
            ]
        )
        owners = torch.from_numpy(np.repeat(np.arange(len(ids)), self._validation.counts))
        try:
            found = rank(images, captions, owners, self.matcher.similarity, 0)
        except ValueError as error:
            raise InputError(
                f"fine-tuning stopped: in validation, {error}; lower finetune.learning_rate"
            ) from None
        return Scores(retrieval_values(found.image_ranks.numpy(), found.caption_ranks.numpy()))

    def warning(self, phase: int, points: Sequence[Point]) -> str | None:
        """Return nothing: training starts from a model that has learned already."""
        return None

    def close(self) -> None:
        """End the processes that read images."""
        self._stream.close()

    def _prepared(self, pixels: Tensor) -> Tensor:
        return normalize(pixels.to(self.matcher.device, non_blocking=True), self._images.input)

    def _unit(self, outputs: Tensor) -> Tensor:
        return self.matcher.normalize(outputs.relu() if self._rectified else outputs)

    def _encode(self, caption_ids: Sequence[str]) -> Tensor:
        """Return the vectors of training captions as the ranking loss sees them."""
        device = self.matcher.device
        vectors = [
            self._unit(self.matcher.text_encoder(words.to(device), lengths, None))
            for words, lengths in self._blocks(self._training, caption_ids)
        ]
        return torch.cat(vectors)

    def _blocks(self, captions: Captions, ids: Sequence[str]) -> Iterator[tuple[Tensor, Tensor]]:
        for start in range(0, len(ids), BLOCK):
            yield captions.words(ids[start : start + BLOCK])


def rank_mined(scores: Tensor, margin: float) -> Tensor:
    """Return the ranking loss of a batch, the sum over its anchors divided by the number of its images.

    Args:
        scores: (images, captions). The first half of the images are anchors, and the first half of the
            captions are theirs, in order. Caption `half + i` is the mined wrong caption of anchor i, and
            image `half + i` the wrong image of its caption.
        margin: by how much a true pair must score higher than a wrong one.
    """
    half = len(scores) // 2
    true = scores.diagonal()[:half]
    wrong_caption, wrong_image = scores.diagonal(half), scores.diagonal(-half)
    violations = (margin - true + wrong_caption).clamp(min=0) + (margin - true + wrong_image).clamp(min=0)
    return violations.sum() / len(scores)


def network_rates(weights: float, biases: float, gains: float, first: float) -> dict[str, float]:
    """Return the factors on the learning rate of the network, by the kind of weights."""
    return {WEIGHTS: weights, BIASES: biases, GAINS: gains, FIRST: first}


def _stacked(pixels: Iterator[Tensor], size: int) -> Iterator[Tensor]:
    waiting: list[Tensor] = []
    for each in pixels:
        waiting.append(each)
        if len(waiting) == size:
            yield torch.stack(waiting)
            waiting = []
    if waiting:
        yield torch.stack(waiting)
