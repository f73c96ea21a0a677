"""What a search cannot answer with NumPy alone: new images, and variants that only torch has.

The module takes seconds to import, so it is imported only where it is used.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from fne.matching.model import Matcher
from fne.matching.modelfile import read_model
from fne.ranking.similarities import SIMILARITIES
from fne.retrieval.index import Maker
from fne.retrieval.project import Project
from fne.retrieval.query import New
from fne.retrieval.scores import Similarity
from fne.retrieval.unseen import Embedder, open_embedder
from fne.store.layout import Layer
from fne.store.lineage import Artifact, merge


@torch.no_grad()
def embed_sentence(model: Path, numbers: Sequence[int]) -> np.ndarray:
    """Return the vector (embed_dim) of a sentence in the joint space, by the numbers of its words."""
    matcher, _ = read_model(model)
    matcher.eval()
    vectors = matcher.embed_captions(torch.tensor([numbers]), torch.tensor([len(numbers)]))
    vector: np.ndarray = vectors[0].numpy()
    return vector


def embed_picture(project: Project, picture: New, captions: Artifact) -> np.ndarray:
    """Return the vector (embed_dim) of a new image in the joint space that `captions` are in."""
    matcher, embedder = _open(project, captions)
    vector: np.ndarray = _embed_rows(matcher, embedder.embed(picture)[None])[0]
    return vector


def open_maker(project: Project, model: Artifact) -> Maker:
    """Put together what makes vectors of many new images in the joint space of `model`."""
    matcher, embedder = _open(project, model)

    def rows(digests: Sequence[str]) -> np.ndarray:
        return _embed_rows(matcher, embedder.rows(digests))

    return Maker([Layer("joint", matcher.shape.embed_dim)], "float32", embedder.prepare, rows)


def similarity(name: str) -> Similarity:
    """Return a similarity of torch's as one of `fne.retrieval.scores`."""

    def scores(images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        found: np.ndarray = SIMILARITIES[name](torch.from_numpy(images), torch.from_numpy(captions)).numpy()
        return found.ravel()

    return scores


def _open(project: Project, companion: Artifact) -> tuple[Matcher, Embedder]:
    """Read the model, which `companion` must be or be made from, and what makes embeddings for it."""
    matcher, origin = read_model(project.model)
    merge(origin, companion)
    embedder = open_embedder(origin, project.weights, project.statistics, project.runtime, project.scratch)
    return matcher, embedder


@torch.no_grad()
def _embed_rows(matcher: Matcher, rows: np.ndarray) -> np.ndarray:
    matcher.eval()
    vectors: np.ndarray = matcher.embed_images(torch.from_numpy(rows.astype(np.float32))).numpy()
    return vectors
