"""Imported vectors of images and captions in place of a model's outputs.

It is a module of its own because the stage `encode` does not depend on what a validation needs.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from fne.core.distributed_layers import Step
from fne.matching.model import Matcher, Shape
from fne.matching.model_file import IMPORTED, imported_shape
from fne.matching.similarities import find_similarity
from fne.store.rows import Rows
from fne.text.caption_vectors import CaptionVectors, require_one_space


class ImportedVectors(Matcher):
    """A model whose outputs are imported vectors.

    `captions` are the vectors of all captions (captions, dim); a caption's number is counted from 1. For
    cosines, vectors are scaled to length one.
    """

    def __init__(self, captions: Tensor, similarity: str) -> None:
        nn.Module.__init__(self)
        self.shape = Shape(**imported_shape(len(captions), captions.shape[1], similarity))
        self.similarity = find_similarity({"source": IMPORTED, "similarity": similarity})
        self.captions = nn.Parameter(captions, requires_grad=False)

    def embed_images(self, rows: Tensor, step: Step | None = None) -> Tensor:
        """Return image vectors (images, dim)."""
        return self.normalize(rows)

    def embed_captions(self, words: Tensor, lengths: Tensor, step: Step | None = None) -> Tensor:
        """Return the vectors of captions (captions, dim), given as numbers (captions, 1)."""
        return self.normalize(self.captions[words[:, 0] - 1])

    def normalize(self, vectors: Tensor) -> Tensor:
        """Scale vectors to length one for cosines; other similarities see them as they are."""
        return functional.normalize(vectors, dim=1) if self.shape.similarity == "cosine" else vectors

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Tensor]:  # type: ignore[override]
        """Return no weights: the vectors are in stores of their own."""
        return {}


def open_imported(rows: Rows, captions: CaptionVectors | None, similarity: str) -> ImportedVectors:
    """Return imported vectors as a model."""
    return ImportedVectors(torch.from_numpy(require_one_space(rows, captions).values), similarity)
