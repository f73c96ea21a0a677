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
from fne.extraction.extractor import Extractor
from fne.finetuning.encode import tuned_extractor
from fne.matching.model import Matcher
from fne.matching.model_file import MODELS, read_model
from fne.search.embed_query import Embedder, embed_rows, open_embedder
from fne.search.folder import RowSource
from fne.search.open_project import Project
from fne.search.snapshot import Snapshot
from fne.store.artifact import Artifact
from fne.store.layout import Layer

WARM_UP_SIDE = 256  # pixels


@dataclass(frozen=True)
class Network:
    """From a decoded photo to its embedding, and to its vector in the joint space.

    Attributes:
        embedder: computes embeddings like those of the catalog.
        reader: computes what the model reads: the same, unless the image network was tuned.
        matcher: the model, or None.
    """

    embedder: Embedder
    reader: Embedder
    matcher: Matcher | None

    def embed(self, sha256: str, picture: Picture) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the embedding (features) of a photo, and its vector (dim) if there is a model.

        Its activations are not kept.
        """
        embedded = _embed(self.embedder, sha256, picture)
        if self.matcher is None:
            return embedded, None
        read = embedded if self.reader is self.embedder else _embed(self.reader, sha256, picture)
        return embedded, embed_rows(self.matcher, read[None])[0]

    def warm_up(self) -> None:
        """Embed an empty photo, so that the first real one does not wait for compilers and libraries."""
        self.embed("", new_picture("RGB", (WARM_UP_SIDE, WARM_UP_SIDE)))

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
            return embed_rows(matcher, self.reader.rows(digests))

        layers = [Layer("joint", matcher.shape.embed_dim)]
        return RowSource(
            layers, "float32", lambda images, root: self.reader.prepare(images, root, watch), rows
        )


def open_network(project: Project, snapshot: Snapshot) -> Network:
    """Load the network that made the embeddings of a snapshot, and its model.

    Raises:
        InputError: if the features were imported, or if the files on disk do not belong to the snapshot.
    """
    # Processes that read ahead would be forks of a process with threads.
    runtime = project.runtime.model_copy(update={"workers": 0})
    lock = threading.Lock()

    def open_guarded(origin: Artifact, extractor: Extractor | None = None) -> Embedder:
        opened = open_embedder(
            origin, project.weights, project.statistics, runtime, project.scratch, extractor
        )
        return replace(opened, extractor=_one_at_a_time(opened.extractor, lock))

    embedder = open_guarded(snapshot.embeddings.artifact) if snapshot.embeddings else None
    if snapshot.joint is None:
        assert embedder
        return Network(embedder, embedder, None)
    recorded = snapshot.joint.model.artifact
    matcher, found = read_model(recorded.path)
    if found.digest != recorded.digest:
        raise InputError(f"{recorded.path} has been replaced; the new artifacts are loaded in a moment")
    reader = embedder
    if recorded.name == MODELS[0]:
        reader = open_guarded(recorded, tuned_extractor(recorded.path, runtime)[0])
    reader = reader or open_guarded(recorded)
    return Network(embedder or reader, reader, matcher)


def _embed(embedder: Embedder, sha256: str, picture: Picture) -> np.ndarray:
    finished = embedder.scratch.rows([sha256]).get(sha256)
    row = embedder.activations(picture, "the photo") if finished is None else finished
    embedded: np.ndarray = embedder.embedding.transform(row[None])[0]
    return embedded


def _one_at_a_time(extractor: Extractor, lock: threading.Lock) -> Extractor:
    def guarded(images: Tensor) -> Tensor:
        with lock:
            return extractor.rows(images)

    return replace(extractor, rows=guarded)
