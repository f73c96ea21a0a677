"""A tagger or captioner: from image rows to concepts, and from concepts to a sequence of tags or words.

    rows -> scaling -> concept head -> concepts -> condition -> decoder -> sequence

The concept head and the decoder can also be used alone: without a decoder only concepts are predicted, and
without a concept head the decoder is conditioned on the rows themselves. What it is conditioned on is an
entry of `CONDITIONS`. Noisy tags that users gave (user tags) can add to the concepts.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from fne.describing.concept_head import ROWS, USER_TAG_SUMS, ConceptHead, UserTagReader
from fne.describing.decoder import Decoder
from fne.describing.settings import DescribingSection
from fne.store.rows import BLOCK
from fne.training.row_source import StoreRows

# Probabilities that are added up become logits again within these bounds.
LEAST = 1e-6


@dataclass(frozen=True)
class DescribingShape:
    """What a tagger or captioner is made of; together with its weights it is the whole model."""

    features: int  # numbers in an image row
    rows: str  # how rows are scaled, a key of `fne.describing.concept_head.ROWS`
    concepts: int  # 0 without a concept head
    hidden: int  # units of the concept head's hidden layer; 0 if it is linear
    condition: str  # a key of `CONDITIONS`
    outputs: int  # tags or words, END and other special ones included; 0 without a decoder
    word_dim: int
    units: int  # the width of the decoder's state
    cell: str  # a key of `fne.describing.recurrent_cells.CELLS`
    inject: str  # a key of `fne.describing.decoder.INJECTIONS`
    input_activation: str = "none"  # or `relu`, of the mapped condition and of mapped words
    user_tags: int = 0  # 0 if none are read
    user_tag_hidden: int = 0  # units of the hidden layer that reads them
    user_tag_sum: str = "logits"  # a key of `fne.describing.concept_head.USER_TAG_SUMS`


def shape_of(
    settings: DescribingSection, features: int, concepts: int, outputs: int, user_tags: int = 0
) -> DescribingShape:
    """Return the shape of the model for rows, concepts, outputs and user tags of these numbers."""
    reader = settings.user_tag_settings
    return DescribingShape(
        features=features,
        rows=settings.rows,
        concepts=concepts if settings.has_concept_head else 0,
        hidden=settings.hidden.dim if settings.concept_head == "hidden" else 0,
        condition=settings.condition,
        outputs=outputs if settings.has_decoder else 0,
        word_dim=settings.word_dim,
        units=settings.units,
        cell=settings.cell,
        inject=settings.inject,
        input_activation=settings.input_activation,
        user_tags=user_tags if reader else 0,
        user_tag_hidden=reader.hidden if reader else 0,
        user_tag_sum=reader.sum if reader else "logits",
    )


class Seen(NamedTuple):
    """What a model sees in images; None where a part is missing."""

    rows: Tensor  # scaled (images, features)
    encoded: Tensor | None  # what concepts are predicted from (images, width)
    image_logits: Tensor | None  # logits of concepts, from the image alone (images, concepts)
    user_tag_logits: Tensor | None  # logits of concepts, from the user tags alone (images, concepts)
    logits: Tensor | None  # logits of concepts, from both (images, concepts)

    @property
    def probabilities(self) -> Tensor:
        """The probabilities of the concepts (images, concepts)."""
        if self.logits is None:
            raise ValueError("a model without a concept head has no concepts")
        return torch.sigmoid(self.logits)


@dataclass(frozen=True)
class Condition:
    """What a decoder is conditioned on: its width, and where it is found."""

    width: Callable[[DescribingShape], int]
    of: Callable[[Seen], Tensor | None]


class DescribingModel(nn.Module):
    """Rows to concepts to sequences, as far as the shape has parts."""

    prior: Tensor

    def __init__(self, shape: DescribingShape, forget_bias: float = 1.0) -> None:
        super().__init__()
        self.shape = shape
        # Not on torch's device `meta`, on which a file is loaded: comparing values there imports a compiler.
        mean, deviation = (fill(shape.features, device="cpu") for fill in (torch.zeros, torch.ones))
        self.scaling = ROWS[shape.rows](mean, deviation)
        self.concept_head = (
            ConceptHead(shape.features, shape.concepts, shape.hidden or None) if shape.concepts else None
        )
        # The log odds of the concepts, as an image says nothing about them yet.
        self.register_buffer("prior", torch.zeros(shape.concepts))
        self.user_tag_reader = (
            UserTagReader(shape.user_tags, shape.user_tag_hidden, shape.concepts) if shape.user_tags else None
        )
        self.decoder = self._decoder(forget_bias) if shape.outputs else None

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.scaling.shift.device

    def fit_rows(self, mean: Tensor, deviation: Tensor) -> None:
        """Scale rows by what was fitted on the training rows (features)."""
        fitted = ROWS[self.shape.rows](mean, deviation)
        self.scaling.load_state_dict(fitted.state_dict())

    def start_concepts(self, log_odds: Tensor) -> None:
        """Let every concept start with its log odds in the training images (concepts)."""
        if self.concept_head is None:
            raise ValueError("a model without a concept head has no concepts")
        self.concept_head.start(log_odds)
        self.prior.copy_(log_odds)

    def see(self, rows: Tensor, user_tags: Tensor | None = None) -> Seen:
        """Return what is seen in image rows (images, features) and, if it reads any, in 0/1 user tags."""
        scaled = self.scaling(rows)
        if self.concept_head is None:
            return Seen(scaled, None, None, None, None)
        encoded = self.concept_head.encode(scaled)
        image_logits = self.concept_head.classify(encoded)
        if self.user_tag_reader is None:
            return Seen(scaled, encoded, image_logits, None, image_logits)
        if user_tags is None:
            raise ValueError("this model reads user tags: give them, zeros where there are none")
        # User tags add to what the image says. Alone, they start from the frequencies of the concepts.
        evidence = self.user_tag_reader(user_tags)
        return Seen(scaled, encoded, image_logits, evidence + self.prior, self._sum(image_logits, evidence))

    def condition(self, seen: Seen) -> Tensor:
        """Return what the decoder is conditioned on (images, condition)."""
        found = CONDITIONS[self.shape.condition].of(seen)
        if found is None:
            raise ValueError(f"a model without a concept head has no {self.shape.condition!r}")
        return found

    def _sum(self, image: Tensor, evidence: Tensor) -> Tensor:
        if self.shape.user_tag_sum == "logits":
            return image + evidence
        probabilities = USER_TAG_SUMS[self.shape.user_tag_sum](image, evidence + self.prior)
        return torch.logit(probabilities, eps=LEAST)

    def _decoder(self, forget_bias: float) -> Decoder:
        shape = self.shape
        width = CONDITIONS[shape.condition].width(shape)
        return Decoder(
            shape.outputs,
            width,
            shape.word_dim,
            shape.units,
            cell=shape.cell,
            inject=shape.inject,
            rectified=shape.input_activation == "relu",
            forget_bias=forget_bias,
        )


def new_describing_model(shape: DescribingShape, seed: int, forget_bias: float = 1.0) -> DescribingModel:
    """Return a model with fresh weights, which the seed alone decides."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return DescribingModel(shape, forget_bias)


def row_moments(source: StoreRows, ids: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Return the mean and the deviation of each feature over some images (features), summed in float64."""
    mean, variance = np.zeros(source.features), np.zeros(source.features)
    for block in map(Tensor.numpy, source.blocks(ids, BLOCK)):
        mean += block.sum(axis=0, dtype=np.float64) / len(ids)
    for block in map(Tensor.numpy, source.blocks(ids, BLOCK)):
        variance += np.square(block - mean).sum(axis=0) / len(ids)
    return torch.from_numpy(mean).float(), torch.from_numpy(np.sqrt(variance)).float()


def _probabilities(seen: Seen) -> Tensor | None:
    return None if seen.logits is None else seen.probabilities


CONDITIONS: dict[str, Condition] = {
    "concepts": Condition(lambda shape: shape.concepts, _probabilities),
    "embedding": Condition(lambda shape: shape.features, lambda seen: seen.rows),
    "hidden": Condition(lambda shape: shape.hidden or shape.features, lambda seen: seen.encoded),
}
