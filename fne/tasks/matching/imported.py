"""Imported vectors of images and captions of one space, evaluated as they are: nothing is trained.

The embeddings of images and the vectors of captions take the place of a model's outputs. The model file
has no weights, so it is only a sealed header; the vectors stay in their stores.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from fne.core.errors import InputError
from fne.models.layers import Step
from fne.models.matcher import Matcher, Shape
from fne.models.matcher_file import IMPORTED
from fne.models.similarities import SIMILARITIES
from fne.store.layout import count_views
from fne.store.rows import Rows
from fne.text.caption_vectors import CaptionVectors

# Kinds of embeddings that are the imported values themselves.
AS_THEY_ARE = ("layer", "plain", "raw")


class ImportedVectors(Matcher):
    """A model whose outputs are imported vectors.

    Args:
        captions: the vectors of all captions (captions, dim); a caption's number is counted from 1.
        similarity: a key of `SIMILARITIES`. For cosines, vectors are scaled to length one.
    """

    def __init__(self, captions: Tensor, similarity: str) -> None:
        nn.Module.__init__(self)
        dim = captions.shape[1]
        self.shape = Shape(IMPORTED, IMPORTED, similarity, False, dim, len(captions) + 1, dim, dim)
        self.similarity = SIMILARITIES[similarity]
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
    """Return imported vectors as a model.

    Raises:
        InputError: if there are no vectors of captions, or if the two sides do not fit.
    """
    if captions is None:
        raise InputError(
            "params.yaml: encode.source is 'imported', but tokenize.vectors names no vectors of captions; "
            "import them with `fne import --captions FILE`, and use -S tokenize.vectors=captions/imported"
        )
    kind = rows.artifact.settings.get("kind")
    if kind not in AS_THEY_ARE:
        raise InputError(
            f"params.yaml: encode.source is 'imported', but embed.kind is '{kind}', which changes the "
            "vectors of images; use -S embed.kind=raw"
        )
    features = rows.features // count_views(rows.layers)
    if features != captions.dim:
        raise InputError(
            f"{rows.artifact.path} has vectors of {features} values, and {captions.artifact.path} of "
            f"{captions.dim}; encode.source 'imported' needs vectors of one space"
        )
    return ImportedVectors(torch.from_numpy(captions.values), similarity)
