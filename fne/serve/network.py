"""What needs torch, loaded once: the embedding of photos that the catalog does not have.

A network belongs to one snapshot. Weights, statistics or a model that do not belong to it are refused by
their digests. Two threads may ask for rows, such as a photo of a visitor and the index of a folder: they
take turns by batches.

Importing this module takes seconds, so the server imports it in a thread.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from PIL.Image import Image as Picture
from PIL.Image import new as new_picture
from torch import Tensor

from fne.core.errors import InputError
from fne.core.progress import Progress
from fne.models.matcher import Matcher
from fne.models.matcher_file import read_model
from fne.search.embed import Embedder, embed_rows, open_embedder
from fne.search.folder import RowSource
from fne.search.project import Project
from fne.serve.snapshot import Snapshot
from fne.store.layout import Layer

WARM_UP_SIDE = 256  # pixels


@dataclass(frozen=True)
class Network:
    """From a decoded photo to its embedding, and to its vector in the joint space."""

    embedder: Embedder
    matcher: Matcher | None

    def embed(self, sha256: str, picture: Picture) -> np.ndarray:
        """Return the embedding (features) of a photo; its activations are not kept."""
        finished = self.embedder.scratch.rows([sha256]).get(sha256)
        row = self.embedder.activations(picture, "the photo") if finished is None else finished
        embedded: np.ndarray = self.embedder.embedding.transform(row[None])[0]
        return embedded

    def warm_up(self) -> None:
        """Embed an empty photo, so that the first real one does not wait for compilers and libraries."""
        embedded = self.embedder.activations(
            new_picture("RGB", (WARM_UP_SIDE, WARM_UP_SIDE)), "an empty photo"
        )
        self.vector(self.embedder.embedding.transform(embedded[None])[0])

    def vector(self, embedded: np.ndarray) -> np.ndarray | None:
        """Return the vector (dim) of an embedding in the joint space, if there is a model."""
        return embed_rows(self.matcher, embedded[None])[0] if self.matcher else None

    def embedding_source(self, dtype: str, watch: Callable[[Progress], None]) -> RowSource:
        """Return what computes the embeddings of a folder's photos."""
        layers = self.embedder.embedding.layers
        return RowSource(
            layers, dtype, lambda images, root: self.embedder.prepare(images, root, watch), self.embedder.rows
        )

    def vector_source(self, watch: Callable[[Progress], None]) -> RowSource:
        """Return what computes the vectors of a folder's photos; there must be a model."""
        matcher = self.matcher
        assert matcher

        def rows(digests: Sequence[str]) -> np.ndarray:
            return embed_rows(matcher, self.embedder.rows(digests))

        layers = [Layer("joint", matcher.shape.embed_dim)]
        return RowSource(
            layers, "float32", lambda images, root: self.embedder.prepare(images, root, watch), rows
        )


def open_network(project: Project, snapshot: Snapshot) -> Network:
    """Load the network that made the embeddings of a snapshot, and its model.

    Raises:
        InputError: if the features were imported, or if the files on disk do not belong to the snapshot.
    """
    origin = snapshot.embeddings.artifact if snapshot.embeddings else None
    matcher = None
    if snapshot.joint:
        recorded = snapshot.joint.model.artifact
        matcher, found = read_model(project.model)
        if found.digest != recorded.digest:
            raise InputError(f"{project.model} has been replaced; the new artifacts are loaded in a moment")
        origin = origin or recorded
    assert origin
    # Processes that read ahead would be forks of a process with threads.
    runtime = project.runtime.model_copy(update={"workers": 0})
    embedder = open_embedder(origin, project.weights, project.statistics, runtime, project.scratch)
    extractor = replace(embedder.extractor, rows=_one_at_a_time(embedder.extractor.rows))
    return Network(replace(embedder, extractor=extractor), matcher)


def _one_at_a_time(rows: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    lock = threading.Lock()

    def guarded(images: Tensor) -> Tensor:
        with lock:
            return rows(images)

    return guarded
