"""The trained model: vectors of sentences and images in the joint space."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fne.api.project import find_project, open_project
from fne.core.errors import InputError
from fne.models.matcher_file import ModelFile, read_model_file
from fne.search.engine import embed_sentences, encode_sentence, without_encoder
from fne.search.project import CatalogImage, ExternalImage, Project, QueryImage, parse_query
from fne.search.without_torch import PREFIX
from fne.store.artifact import MODELS, merge, model_of
from fne.store.layout import MANIFEST
from fne.store.rows import Rows
from fne.text.vocabulary import read_vocabulary


class Model:
    """A trained model, with what belongs to it in its project.

    Vectors have length one. With the similarity `cosine`, the score of an image and a sentence is the inner
    product of their vectors.

    Attributes:
        path: the file of the model.
        dim: the length of the vectors.
        similarity: the similarity that the model was trained with.
        settings: the settings that it was trained with.

    Example:
        >>> model = fne.load_model(project)
        >>> sentences = model.encode_sentences(["a red circle", "something blue"])
        >>> images = model.encode_images(["red-circle.png", "blue-line.png", "green-square.png"])
        >>> (images @ sentences.T).shape
        (3, 2)
    """

    def __init__(self, file: ModelFile, project: Project) -> None:
        self._file = file
        self._project = project
        self._vocabulary = read_vocabulary(project.vocabulary)
        merge(file.artifact, self._vocabulary.artifact)
        self.path = file.artifact.path
        self.dim: int = file.shape["embed_dim"]
        self.similarity: str = file.shape["similarity"]
        self.settings: dict[str, Any] = file.artifact.settings

    def __repr__(self) -> str:
        return f"<Model {self.path}: {self.dim} dimensions, similarity '{self.similarity}'>"

    def encode_sentences(self, sentences: Sequence[str]) -> np.ndarray:
        """Return the vectors of sentences (sentences, dim), in float32.

        Words that are not in the vocabulary are encoded as the unknown word.

        Raises:
            InputError: if a sentence has no word that is in the vocabulary.
        """
        if isinstance(sentences, str):
            raise InputError(f"sentences: expected a list of sentences, got {sentences!r}")
        if without_encoder(self._file.artifact):
            raise InputError(
                f"{self.path}: the vectors of captions were imported, and the encoder that computed them is "
                "unknown; sentences cannot be encoded"
            )
        numbers = [encode_sentence(each, self._vocabulary).numbers for each in sentences]
        return embed_sentences(self._file, numbers) if numbers else np.empty((0, self.dim), dtype=np.float32)

    def encode_images(self, images: Sequence[str | Path]) -> np.ndarray:
        """Return the vectors of images (images, dim), in float32.

        Vectors of images of the catalog are read if they are in `vectors/images`. New images pass through the
        network, which needs its weights and `features/statistics.h5`.

        Args:
            images: ids of the catalog, or image files.

        Raises:
            InputError: if there is no such image, or if an image or an artifact is missing or damaged.
        """
        if isinstance(images, str | Path):
            raise InputError(f"images: expected a list of images, got {str(images)!r}")
        queries = [self._image(str(each)) for each in images]
        vectors = np.empty((len(queries), self.dim), dtype=np.float32)
        known = [place for place, each in enumerate(queries) if isinstance(each, CatalogImage)]
        new = [place for place, each in enumerate(queries) if isinstance(each, ExternalImage)]
        if known:
            vectors[known] = self._catalog_vectors([str(queries[place].id) for place in known])
        if new:
            vectors[new] = self._new_vectors([each for each in queries if isinstance(each, ExternalImage)])
        return vectors

    def _image(self, name: str) -> QueryImage:
        query = parse_query(name, self._project.catalog)
        if isinstance(query, str):
            raise InputError(f"{name!r} is neither a file nor an image id of the catalog")
        return query

    def _catalog_vectors(self, ids: Sequence[str]) -> np.ndarray:
        """Read the vectors that `encode` wrote, or compute them if these are missing or of another model."""
        if (self._project.image_vectors / MANIFEST).is_file():
            vectors = Rows.open(self._project.image_vectors, "image_vectors")
            if model_of(vectors.artifact) == model_of(self._file.artifact):
                return vectors.read(ids)
        if self._file.artifact.name == MODELS[0]:
            raise InputError(
                f"{self._project.image_vectors}: has no vectors of the tuned network in {self.path}; run "
                "`dvc repro encode`"
            )
        embeddings = Rows.open(self._project.embeddings, "embeddings")
        merge(self._file.artifact, embeddings.artifact)
        from fne.models.matcher_file import read_model
        from fne.search.embed import embed_rows  # imports torch

        return embed_rows(read_model(self.path)[0], embeddings.read(ids))

    def _new_vectors(self, images: Sequence[ExternalImage]) -> np.ndarray:
        from fne.models.matcher_file import read_model
        from fne.search.embed import embed_rows, open_model_embedder  # imports torch

        matcher, origin = read_model(self.path)
        embedder = open_model_embedder(self._project, origin)
        return embed_rows(matcher, np.stack([embedder.embed(image) for image in images]))


def load_model(path: str | Path = ".", *, root: str | Path | None = None) -> Model:
    """Load a trained model.

    Args:
        path: the folder of a project, whose model is then loaded, or the file of a model.
        root: the folder of the project, if `path` is a file outside it.

    Raises:
        InputError: if the model or the vocabulary is missing or damaged, or if they do not belong together.
    """
    given = Path(path).expanduser()
    if root is not None:
        project = open_project(root)
        file = project.path(str(given)) if given != Path() else project.current_model
    elif given.is_dir():
        project = open_project(given)
        file = project.current_model
    else:
        found = find_project(given)
        if found is None:
            raise InputError(f"{path}: no project above this file; pass the project's folder as root")
        project, file = found, given
    return Model(read_model_file(file, PREFIX), project)
