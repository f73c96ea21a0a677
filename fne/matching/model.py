"""The model: an image head and a text encoder that meet on the unit sphere."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from fne.core.distributed_layers import Step, SyncBatchNorm
from fne.core.settings import Section
from fne.matching.image_heads import IMAGE_HEADS
from fne.matching.settings import Train
from fne.matching.similarities import SIMILARITIES
from fne.matching.text_encoders import TEXT_ENCODERS
from fne.matching.word_table import word_table

# What the factor for words applies to: the table and, of `text_cnn`, the bias that is added to all positions.
WORD_LAYER = ("text_encoder.words.weight", "text_encoder.bias")
# What training computes with; less than float32 on a GPU only.
PRECISIONS = {"bfloat16": torch.bfloat16, "float32": torch.float32}


@dataclass(frozen=True)
class Shape:
    """What a model is made of; together with its weights it is the whole model."""

    image_head: str
    text_encoder: str
    similarity: str
    absolute: bool
    features: int
    vocabulary_size: int
    word_dim: int
    embed_dim: int
    image_head_settings: dict[str, Any] = field(default_factory=dict)
    text_encoder_settings: dict[str, Any] = field(default_factory=dict)


def shape_of(settings: Train, features: int, vocabulary_size: int, row: int = 0) -> Shape:
    """Return the shape of the model for embeddings and a vocabulary of these sizes.

    Args:
        row: the length of the rows of captions, if the text encoder reads those.
    """
    word_dim = settings.word_dim if settings.starts_from == "random" else settings.embed_dim + 1
    heads = [getattr(settings, name, None) for name in (settings.image_head, settings.text_encoder)]
    return Shape(
        settings.image_head,
        settings.text_encoder,
        settings.similarity,
        settings.absolute,
        features,
        vocabulary_size,
        row or word_dim,
        settings.embed_dim,
        *({} if own is None else own.model_dump() for own in heads),
    )


def block(name: str, values: dict[str, Any]) -> Section | None:
    """Return the settings of an image head or a text encoder, or None if it has none."""
    schema = Train.nested().get(name)
    if schema is None and values != {}:
        raise ValueError(f"{name!r} has no settings, got {values}")
    return schema.model_validate(values) if schema else None


class Matcher(nn.Module):
    """Maps images and captions to vectors of length one in the joint space.

    Word vectors (vocabulary_size, word_dim) are drawn if none are given; fixed ones are not trained.
    """

    def __init__(self, shape: Shape, vectors: np.ndarray | None = None, fixed: bool = False) -> None:
        super().__init__()
        self.shape = shape
        self.similarity: Callable[[Tensor, Tensor], Tensor] = SIMILARITIES[shape.similarity]
        head, encoder = IMAGE_HEADS[shape.image_head], TEXT_ENCODERS[shape.text_encoder]
        own = block(shape.image_head, shape.image_head_settings)
        self.image_head = head(shape.features, shape.embed_dim, own)
        words = word_table(shape.vocabulary_size, shape.word_dim, vectors, fixed)
        self.text_encoder = encoder(
            words, shape.embed_dim, block(shape.text_encoder, shape.text_encoder_settings)
        )

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

    def embed_images(self, rows: Tensor, step: Step | None = None) -> Tensor:
        """Map image embeddings (images, features) to (images, embed_dim); a training batch has a step."""
        return self.normalize(self.image_head(rows, step))

    def embed_captions(self, words: Tensor, lengths: Tensor, step: Step | None = None) -> Tensor:
        """Map padded words (captions, longest) to (captions, embed_dim); a training batch has a step."""
        return self.normalize(self.text_encoder(words, lengths, step))

    def normalize(self, vectors: Tensor) -> Tensor:
        """Map outputs of the head or the encoder (rows, embed_dim) to vectors of length one."""
        unit = functional.normalize(vectors, dim=1)
        return unit.abs() if self.shape.absolute else unit


def parameter_kinds(matcher: Matcher) -> dict[int, str]:
    """Return `gains` (batch normalization) or `words` for parameters with their own rate, by identity."""
    kinds = {id(each.weight): "gains" for each in matcher.modules() if isinstance(each, SyncBatchNorm)}
    return kinds | {id(each): "words" for name, each in matcher.named_parameters() if name in WORD_LAYER}


def new_matcher(shape: Shape, seed: int, vectors: np.ndarray | None = None, fixed: bool = False) -> Matcher:
    """Return a model with fresh weights, which the seed and the word vectors alone decide."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Matcher(shape, vectors, fixed)
