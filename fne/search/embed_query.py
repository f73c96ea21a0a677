"""The parts of a search that need torch: new images, and variants without a NumPy implementation.

An image that the catalog does not have is embedded exactly as the catalog's images were. What
determines an embedding is recorded in the lineage of the artifacts made from it: settings and
weights of the network, statistics, thresholds. If one of these differs, the image is refused.

Importing this module takes seconds, so it is imported only where it is used.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL.Image import Image as Picture

from fne.core.errors import InputError
from fne.core.params import Runtime
from fne.core.progress import Progress
from fne.core.terminal import say
from fne.extraction.extractor import Extractor
from fne.extraction.finished_rows import Scratch
from fne.extraction.recorded_extractor import open_extractor
from fne.extraction.run import check_finite, complete
from fne.features.embeddings import EMBEDDINGS, Embedding
from fne.features.embeddings import Choices as EmbeddingChoices
from fne.features.standardize import read_statistics
from fne.finetuning.encode import tuned_extractor
from fne.matching.model import Matcher
from fne.matching.model_file import MODELS, read_model, require_same_model
from fne.matching.similarities import SIMILARITIES
from fne.search.folder import RowSource
from fne.search.numpy_model import Similarity
from fne.search.open_project import ExternalImage, Project
from fne.store.artifact import Artifact, merge
from fne.store.catalog import Image
from fne.store.images import decode_bytes
from fne.store.layout import Layer, Manifest, mean_of_views
from fne.store.rows import Rows

BLOCK = 256  # rows
KEPT = "for the index, so that the next search of this folder starts at once"


@dataclass(frozen=True)
class Embedder:
    """Computes embeddings of image files; finished activations are kept in the scratch folder."""

    extractor: Extractor
    embedding: Embedding
    scratch: Scratch
    runtime: Runtime

    def embed(self, image: ExternalImage) -> np.ndarray:
        """Return the embedding of one image file."""
        finished = self.scratch.rows([image.sha256]).get(image.sha256)
        row = self._compute(image) if finished is None else finished
        embedded: np.ndarray = self.embedding.transform(row[None])[0]
        return embedded

    def prepare(
        self, images: Sequence[Image], root: Path, watch: Callable[[Progress], None] | None = None
    ) -> None:
        """Compute the activations of many images; finished ones are kept if this is interrupted.

        Args:
            images: the images.
            root: the folder of their files.
            watch: called with the progress, if there is something to compute.
        """
        complete(
            self.scratch,
            images,
            root,
            self.extractor,
            self.runtime.batch,
            self.runtime.workers,
            partial(say, err=True),
            title="indexing photos",
            kept=KEPT,
            watch=watch,
        )

    def rows(self, digests: Sequence[str]) -> np.ndarray:
        """Return the embeddings of prepared images, given the digests of their files."""
        finished = self.scratch.rows(digests)
        blocks = [np.empty((0, sum(layer.features for layer in self.embedding.layers)), dtype=np.float32)]
        for start in range(0, len(digests), BLOCK):
            activations = np.stack([finished[digest] for digest in digests[start : start + BLOCK]])
            blocks.append(self.embedding.transform(activations))
        return np.concatenate(blocks)

    def activations(self, picture: Picture, name: str) -> np.ndarray:
        """Return the activations of a decoded image, which are not kept."""
        row: np.ndarray = self.extractor.compute([self.extractor.resize(picture)])[0]
        check_finite(row, name, self.extractor.layers)
        return row

    def _compute(self, image: ExternalImage) -> np.ndarray:
        row = self.activations(decode_bytes(image.content), str(image.file))
        try:
            self._keep(image.sha256, row)
        except InputError as error:  # such as a scratch folder that cannot be written
            say(f"the activations of the image are not kept for the next search: {error.message}", err=True)
        return row

    def _keep(self, sha256: str, row: np.ndarray) -> None:
        for journal, _, unfinished in self.scratch.claims([sha256]):
            try:
                for digest in unfinished:
                    journal.append(digest, row)
            finally:
                journal.unlock()


def open_embedder(
    origin: Artifact,
    weights: Path,
    statistics: Path,
    runtime: Runtime,
    scratch: Path,
    extractor: Extractor | None = None,
) -> Embedder:
    """Open what computed the embeddings that `origin` holds or was made from.

    Args:
        origin: the embeddings, or a model that was trained on them.
        weights: the weights file of the network.
        statistics: the file of the statistics.
        runtime: the runtime settings.
        scratch: the scratch folder.
        extractor: that of a tuned network; without it, `origin` names the network.

    Raises:
        InputError: if `origin` was made from other weights or statistics; the message has both digests.
    """
    extractor = extractor or open_extractor(origin, weights, runtime)
    ordinary, fitted = read_statistics(statistics)
    recorded = merge(origin, fitted)["embeddings"]["settings"]
    # A store without rows: an embedding needs only its layers.
    manifest = Manifest(
        name="activations",
        settings={},
        lineage={},
        dtype="float32",
        layers=[(layer.name, layer.features) for layer in extractor.layers],
        shards=[],
    )
    activations = Rows(Artifact(origin.path, "activations", ""), manifest)
    embedding = EMBEDDINGS[recorded["kind"]](activations, ordinary, EmbeddingChoices.recorded(recorded))
    finished = Scratch(scratch / "activations", extractor.kind, extractor.features)
    return Embedder(extractor, embedding, finished, runtime)


@torch.no_grad()
def embed_sentences(model: Path, sentences: Sequence[Sequence[int]]) -> np.ndarray:
    """Return the vectors (sentences, embed_dim) of sentences in the joint space, given their word numbers."""
    matcher, _ = read_model(model)
    matcher.eval()
    vectors = [
        matcher.embed_captions(torch.tensor([list(numbers)]), torch.tensor([len(numbers)]))
        for numbers in sentences
    ]
    found: np.ndarray = torch.cat(vectors).numpy()
    return found


def embed_image(project: Project, image: ExternalImage, captions: Artifact) -> np.ndarray:
    """Return the vector (embed_dim) of a new image in the joint space of `captions`."""
    matcher, embedder = _open_model(project, captions)
    vector: np.ndarray = embed_rows(matcher, embedder.embed(image)[None])[0]
    return vector


def open_row_source(project: Project, model: Artifact) -> RowSource:
    """Open what computes vectors of many new images in the joint space of `model`."""
    matcher, embedder = _open_model(project, model)

    def rows(digests: Sequence[str]) -> np.ndarray:
        return embed_rows(matcher, embedder.rows(digests))

    return RowSource([Layer("joint", matcher.shape.embed_dim)], "float32", embedder.prepare, rows)


@torch.no_grad()
def embed_rows(matcher: Matcher, rows: np.ndarray) -> np.ndarray:
    """Return the vectors (rows, embed_dim) of images in the joint space, given their embeddings."""
    matcher.eval()
    averaged = mean_of_views(rows.astype(np.float32), rows.shape[1] // matcher.shape.features)
    vectors: np.ndarray = matcher.embed_images(torch.from_numpy(averaged)).numpy()
    return vectors


def torch_similarity(name: str) -> Similarity:
    """Return a similarity of `fne.matching.similarities` with the interface of `fne.search.numpy_model`."""

    def scores(images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        found: np.ndarray = SIMILARITIES[name](torch.from_numpy(images), torch.from_numpy(captions)).numpy()
        return found.ravel()

    return scores


def _open_model(project: Project, artifact: Artifact) -> tuple[Matcher, Embedder]:
    """Open the model and its embedder; `artifact` must be that model or made with it."""
    matcher, origin = read_model(project.current_model)
    merge(origin, artifact)
    require_same_model(origin, artifact)
    return matcher, open_model_embedder(project, origin)


def open_model_embedder(project: Project, origin: Artifact) -> Embedder:
    """Open what computes the embeddings that a model reads: with the tuned network, if it was tuned.

    Args:
        project: the project.
        origin: the model of the project, tuned or not.
    """
    extractor = None
    if origin.name == MODELS[0]:
        extractor, _ = tuned_extractor(origin.path, project.runtime)
    runtime, scratch = project.runtime, project.scratch
    return open_embedder(origin, project.weights, project.statistics, runtime, scratch, extractor)
