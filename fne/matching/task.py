"""The matching task: images and captions meet in a joint space.

The objective is a weighted sum of terms: a ranking loss over the scores of a batch, and the instance
loss of the images and of the captions, whose classifier both share. The classifier is trained with the
model and stored separately. If the rows of images come from a network, it is trained too.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fne.core.device import download, upload
from fne.core.distributed_layers import Step
from fne.core.processes import ALONE, Processes
from fne.evaluation.metrics.recall import has_started
from fne.matching.data import Draw, PairBatch, Pairs
from fne.matching.encode import BatchVectors, embed_batch, read_batch
from fne.matching.hard_negatives import MINERS, LossChoices, mined_loss
from fne.matching.info_nce import InfoNCE
from fne.matching.instance_loss import Classes
from fne.matching.mined_captions import rank_mined, with_mined_captions
from fne.matching.model import PRECISIONS, Matcher, parameter_kinds
from fne.matching.settings import FACTORS, INFO_NCE, TERM_WEIGHTS, Train
from fne.matching.tfidf import TfIdf
from fne.matching.validate import (
    BATCHES_WITHOUT_NEGATIVE,
    NOTHING_TO_MINE,
    collapse_warning,
    flat_loss,
    instance_warning,
    is_flat,
    mining_warning,
    stays_at,
    validate,
)
from fne.training.best_epoch import Point, Scores
from fne.training.task import Loss, ParameterGroup

# The names of the terms of the instance loss in the history.
IMAGE_CLASSES, TEXT_CLASSES = "image_classes", "text_classes"

# The rate of a tensor that is zero at the start, of relative rates.
RATE_OF_ZEROS = 1e-3


@dataclass(frozen=True)
class Objective:
    """What one phase minimizes: a weighted sum of terms. A term of weight 0 is not computed.

    If `mined`, batches have mined captions: the ranking loss then is `rank_mined`, a mean, and the model has
    learned before, so nothing is said about a training run that does not start.
    """

    name: str  # a key of `fne.matching.hard_negatives.MINERS`, or `info_nce`, unless `mined`
    choices: LossChoices
    margin: float
    rank: float = 1.0  # the weight of the ranking loss
    image_classes: float = 0.0  # the weight of the instance loss of images
    text_classes: float = 0.0  # the weight of the instance loss of captions
    mined: bool = False

    @property
    def has_instance_loss(self) -> bool:
        """Whether the classifier is used."""
        return bool(self.image_classes or self.text_classes)

    @property
    def title(self) -> str:
        """The names of its terms, for the progress bar."""
        return " + ".join([self.name] * bool(self.rank) + ["instance"] * self.has_instance_loss)


@dataclass(frozen=True)
class RateFactors:
    """Factors on the learning rate: of word vectors, the classifier, and the gains of batch normalization."""

    words: float = 1.0
    classifier: float = 1.0
    gains: float = 1.0
    classifier_bias: float = 1.0  # a further factor for the bias of the classifier


def objectives(settings: Train) -> list[Objective]:
    """Return what each phase minimizes."""
    return [_objective(settings, values) for values in settings.phase_values()]


def rate_factors(settings: Train) -> list[RateFactors]:
    """Return the factors on the learning rate in each phase."""
    bias = settings.instance.bias_rate
    return [RateFactors(*[*(values[key] for key in FACTORS), bias]) for values in settings.phase_values()]


def _objective(settings: Train, values: Mapping[str, Any]) -> Objective:
    name = values["loss"]
    own = getattr(settings, name, None) if name in MINERS else None
    choices = LossChoices(
        **({} if own is None else own.model_dump()),
        reduce=settings.reduce,
        image_anchors=settings.image_anchors,
        caption_anchors=settings.caption_anchors,
    )
    return Objective(name, choices, values["margin"], *(values[key] for key in TERM_WEIGHTS))


@dataclass(frozen=True)
class MatchingData:
    """The pairs of training and validation, and how the batches of the former are drawn."""

    training: Pairs
    validation: Pairs
    draw: Draw


@dataclass(frozen=True)
class MatchingOptions:
    """How the task computes."""

    precision: str = "float32"  # a key of `PRECISIONS`
    negatives: str = "other_images"  # see `PairBatch.positives`
    rates: str = "equal"  # a key of `RATES`
    rectified: bool = False  # whether vectors of length one are those after ReLU
    factors: Sequence[RateFactors] = ()  # per phase; none: 1
    processes: Processes = ALONE
    section: str = "train"  # see `Task`, as for the next one
    memory_hint: str = "lower train.batch, train.embed_dim or train.word_dim"


USUAL = MatchingOptions()


class MatchingTask:
    """Learns from pairs of images and captions; validated by the sum of six recalls."""

    def __init__(
        self,
        matcher: Matcher,
        objectives: Sequence[Objective],
        data: MatchingData,
        options: MatchingOptions = USUAL,
        classes: Classes | None = None,
        info_nce: InfoNCE | None = None,
    ) -> None:
        self.matcher, self.data = matcher, data
        self.section, self.memory_hint = options.section, options.memory_hint
        self.source = data.training.source
        network = {} if self.source.network is None else {"network": self.source.network}
        self.trained = nn.ModuleDict({**network, "model": matcher})
        self._own_losses: dict[str, nn.Module] = {} if classes is None else {"instance": classes.loss}
        if info_nce is not None and info_nce.settings.learned:
            self._own_losses[INFO_NCE] = info_nce
        if self._own_losses:
            self.trained["losses"] = nn.ModuleDict(self._own_losses)
        if classes is None and any(each.has_instance_loss for each in objectives):
            raise ValueError("an instance loss needs classes")
        if info_nce is None and any(each.name == INFO_NCE for each in objectives):
            raise ValueError("InfoNCE needs its temperature")
        self._info_nce = info_nce
        self._objectives, self._options, self._classes = objectives, options, classes
        self._factors = list(options.factors) or [RateFactors()] * len(objectives)
        self._processes = options.processes
        # Groups of the weights that training starts with, so a resumed training has the same.
        self._groups = RATES[options.rates](matcher)
        self.start_phase(0)

    def start_phase(self, number: int) -> None:
        """Use the objective of a phase."""
        self._objective, self._factor = self._objectives[number], self._factors[number]
        self._without_negative = torch.zeros((), dtype=torch.int64, device=self.matcher.device)

    def parameter_groups(self) -> list[ParameterGroup]:
        """Return the weights that the phase trains, those of the classifier only if it is used."""
        factors, groups = self._factor, list(self.source.parameter_groups())
        by_kind = {"words": factors.words, "gains": factors.gains, "weights": 1.0}
        kinds = parameter_kinds(self.matcher) if by_kind != dict.fromkeys(by_kind, 1.0) else {}
        for group in self._groups:
            for kind, factor in by_kind.items():
                own = [each for each in group.parameters if kinds.get(id(each), "weights") == kind]
                if own:
                    name = kind if group.name == "weights" else group.name
                    groups.append(ParameterGroup(name, own, factor * group.rate))
        if self._classes is not None and self._objective.has_instance_loss:
            loss = self._classes.loss
            groups.append(ParameterGroup("classifier", [loss.weight], factors.classifier))
            if loss.bias is not None:
                bias = factors.classifier * factors.classifier_bias
                groups.append(ParameterGroup("classifier_bias", [loss.bias], bias))
        if INFO_NCE in self._own_losses and self._objective.name == INFO_NCE:
            groups.append(ParameterGroup("temperature", list(self._own_losses[INFO_NCE].parameters())))
        return groups

    def steps(self) -> int:
        """Return the number of batches per epoch."""
        return len(self.data.draw.sizes())

    def batches(self, epoch: int) -> list[PairBatch]:
        """Return the batches of an epoch."""
        return self.data.draw.batches(epoch)

    def loss(self, batch: PairBatch, generator: torch.Generator) -> Loss:
        """Return the objective of a batch.

        A loss of hinges is the same in all processes. Of InfoNCE and of the instance loss, every process has
        the part of its own pairs: added up, they are the loss of the whole batch.
        """
        objective, options, pairs = self._objective, self._options, self.data.training
        part = self._processes.partition(len(batch))
        step = Step(generator, len(batch), part, self._processes)
        rows = read_batch(self.matcher, self.source, batch.part(part))
        if batch.candidates:
            batch = with_mined_captions(batch, rows.detach(), self.matcher, pairs, options.rectified, step)
        captions = pairs.captions(batch.caption_ids[part])
        precision = PRECISIONS[options.precision]
        vectors = embed_batch(self.matcher, rows, captions, step, precision, options.rectified)
        # The history divides by the number of images, but of mined batches the terms are means.
        scale = len(batch) if objective.mined else 1
        weighted: list[Tensor] = []  # what this process minimizes
        values: list[Tensor] = []  # the same for the whole batch
        terms: dict[str, Tensor] = {}
        if objective.rank:
            ranking = self._rank(vectors, batch, step)
            value = ranking.detach().clone()
            if objective.name == INFO_NCE:
                self._processes.add(value)
                terms |= self._temperature(len(batch))
            terms[objective.name] = value * scale
            weighted.append(objective.rank * ranking)
            values.append(objective.rank * value)
        if objective.has_instance_loss:
            for name, weight, own, wrong in self._instance_terms(vectors, batch, step):
                mean, error = own.detach().clone(), wrong.to(own.dtype)
                self._processes.add(mean)
                self._processes.add(error)
                terms[name] = mean * len(batch)  # summed, because the history divides by the pairs
                terms[f"{name}_error"] = 100 * error * len(batch)  # in percent
                weighted.append(weight * own)
                values.append(weight * mean)
        return Loss(torch.stack(weighted).sum(), torch.stack(values).sum() * scale, terms)

    def _temperature(self, pairs: int) -> dict[str, Tensor]:
        """Return a learned temperature for the history, which divides by the pairs."""
        assert self._info_nce is not None
        found = self._info_nce.temperature
        return {"temperature": found.detach() * pairs} if isinstance(found, Tensor) else {}

    def _rank(self, vectors: BatchVectors, batch: PairBatch, step: Step) -> Tensor:
        objective = self._objective
        if objective.name == INFO_NCE:
            assert self._info_nce is not None
            numbers = upload(batch.numbers(self._options.negatives), self.matcher.device)
            found: Tensor = self._info_nce(
                vectors.images, vectors.captions, self.matcher.similarity, numbers, step
            )
            return found
        scores = self.matcher.similarity(vectors.images, vectors.captions)
        if objective.mined:
            return rank_mined(scores, objective.margin)
        positives = upload(batch.positives(self._options.negatives), self.matcher.device)
        truth = torch.arange(len(batch), device=scores.device)
        ranking = mined_loss(objective.name, objective.choices, scores, positives, truth, objective.margin)
        if objective.name in NOTHING_TO_MINE:
            # Counted on the device, and read only for a warning.
            self._without_negative = (self._without_negative + 1) * ~ranking.detach().any()
        return ranking

    def _instance_terms(
        self, vectors: BatchVectors, batch: PairBatch, step: Step
    ) -> list[tuple[str, float, Tensor, Tensor]]:
        """Return name, weight, and this process's part of each term of the instance loss and of its error."""
        assert self._classes is not None
        paths = [
            (IMAGE_CLASSES, self._objective.image_classes, vectors.own_images),
            (TEXT_CLASSES, self._objective.text_classes, vectors.own_captions),
        ]
        used = [path for path in paths if path[1]]
        loss, labels = self._classes.loss, self._labels(batch.image_ids[step.rows])
        if self._objective.mined:  # a mined caption has the class of its own image
            owners = [self.data.training.owners[each] for each in batch.caption_ids[step.rows]]
            labels_of = {IMAGE_CLASSES: labels, TEXT_CLASSES: self._labels(owners)}
            losses = [loss([outputs], labels_of[name], step)[0] for name, _, outputs in used]
        else:
            losses = loss([outputs for _, _, outputs in used], labels, step)
        return [(name, weight, *each) for (name, weight, _), each in zip(used, losses, strict=True)]

    def _labels(self, image_ids: Sequence[str]) -> Tensor:
        assert self._classes is not None
        numbers = [self._classes.labels[each] for each in image_ids]
        return upload(torch.tensor(numbers, dtype=torch.int64), self.matcher.device)

    def validate(self) -> Scores:
        """Rank the validation images and their captions."""
        return validate(self.matcher, self.data.validation, self._processes, self.section)

    def warning(self, phase: int, points: Sequence[Point]) -> str | None:
        """Detect a phase that has nothing to mine, or that stays at the loss of a collapsed model."""
        objective = self._objectives[phase]
        if objective.mined:
            return None
        if int(download(self._without_negative)) >= BATCHES_WITHOUT_NEGATIVE:
            return mining_warning(objective.name)
        if objective.has_instance_loss:
            return self._instance_fault(objective, points)
        flat = self._flat_loss(objective)
        if flat is None or not is_flat(points, flat) or self.has_started(points[-1]):
            return None
        return collapse_warning(objective.name, flat)

    def has_collapsed(self, points: Sequence[Point]) -> bool:
        """Return whether the last phase of a training run ended at the loss of a collapsed model."""
        last = points[-1].phase
        flat = self._flat_loss(self._objectives[last - 1])
        stuck = flat is not None and is_flat([point for point in points if point.phase == last], flat)
        return stuck and not self.has_started(points[-1])

    def _instance_fault(self, objective: Objective, points: Sequence[Point]) -> str | None:
        """Detect an instance loss that stays at that of chance; of several terms, any."""
        assert self._classes is not None
        chance = math.log(len(self._classes.loss.weight))
        weights = {IMAGE_CLASSES: objective.image_classes, TEXT_CLASSES: objective.text_classes}
        used = {name: weight for name, weight in weights.items() if weight}
        if len(used) == 1 and not objective.rank:  # the only term is the objective, per batch
            [weight] = used.values()
            sizes = self.data.draw.sizes()
            found = [point.loss * sum(sizes) / len(sizes) / weight for point in points]
            return instance_warning(chance) if stays_at(found, chance) else None
        for name in used:
            if stays_at([point.terms[name] for point in points], chance):
                return instance_warning(chance)
        return None

    def has_started(self, point: Point) -> bool:
        """Return whether the model of a point is clearly above chance."""
        return has_started(point.scores.main, self.data.validation.caption_counts)

    def _flat_loss(self, objective: Objective) -> float | None:
        """Return the objective of a collapsed model, or None if the ranking loss is not the only term."""
        if objective.has_instance_loss:
            return None
        flat = flat_loss(objective.name, objective.choices, objective.margin, self.data.draw.sizes())
        return None if flat is None else objective.rank * flat


def equal_rates(matcher: Matcher) -> list[ParameterGroup]:
    """Return the trained weights of a model as one group: the learning rate holds for all of them."""
    return [ParameterGroup("weights", [each for each in matcher.parameters() if each.requires_grad])]


def relative_rates(matcher: Matcher) -> list[ParameterGroup]:
    """Return each trained tensor as a group, with the root mean square of its values as its rate.

    With Adam, each tensor then changes by the same fraction per step, whatever the scale of the embeddings.
    """
    groups = []
    for name, tensor in matcher.named_parameters():
        if tensor.requires_grad:
            trained = tensor[:, :-1] if _has_weights_of_words(matcher, tensor) else tensor
            size = float(trained.detach().double().square().mean().sqrt())
            groups.append(ParameterGroup(name, [tensor], size or RATE_OF_ZEROS))
    return groups


def _has_weights_of_words(matcher: Matcher, tensor: nn.Parameter) -> bool:
    """Return whether the last column holds the weights of words, which training does not move."""
    encoder = matcher.text_encoder
    return isinstance(encoder, TfIdf) and tensor is encoder.words.weight


RATES: dict[str, Callable[[Matcher], list[ParameterGroup]]] = {
    "equal": equal_rates,
    "relative": relative_rates,
}
