"""The model: an image head and a text encoder that meet on the unit sphere."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from fne.matching.image_heads import IMAGE_HEADS
from fne.matching.text_encoders import TEXT_ENCODERS
from fne.ranking.similarities import SIMILARITIES

# What training computes with; less than float32 on a GPU only.
PRECISIONS = {"bfloat16": torch.bfloat16, "float32": torch.float32}


@dataclass(frozen=True)
class Shape:
    """What a model is made of; together with the weights it is the whole model."""

    image_head: str
    text_encoder: str
    similarity: str
    absolute: bool
    features: int
    vocabulary_size: int
    word_dim: int
    embed_dim: int


class Matcher(nn.Module):
    """Maps images and captions to vectors of length one in the joint space."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.similarity = SIMILARITIES[shape.similarity]
        self.image_head = IMAGE_HEADS[shape.image_head](shape.features, shape.embed_dim)
        encoder = TEXT_ENCODERS[shape.text_encoder]
        self.text_encoder = encoder(shape.vocabulary_size, shape.word_dim, shape.embed_dim)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

    def embed_images(self, rows: Tensor) -> Tensor:
        """Map image embeddings (images, features) to (images, embed_dim)."""
        return self._normalize(self.image_head(rows))

    def embed_captions(self, words: Tensor, lengths: Tensor) -> Tensor:
        """Map padded words (captions, longest) to (captions, embed_dim)."""
        return self._normalize(self.text_encoder(words, lengths))

    def _normalize(self, vectors: Tensor) -> Tensor:
        unit = functional.normalize(vectors, dim=1)
        return unit.abs() if self.shape.absolute else unit


def new_matcher(shape: Shape, seed: int) -> Matcher:
    """Return a model with fresh weights, which are a matter of the seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Matcher(shape)
