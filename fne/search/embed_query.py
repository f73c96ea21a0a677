"""The parts of a search that need torch: new images, and all text encoders and similarities but the default.

A new image is embedded exactly as the catalog's images were. The lineage of artifacts records what decides an
embedding (settings and weights of the network, statistics, thresholds). If one of these differs, the image is
refused. Importing this module takes seconds, so it is imported only where it is used.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL.Image import Image as Picture
from PIL.Image import new as new_picture
from torch import Tensor

from fne.core.errors import InputError
from fne.core.progress import Progress
from fne.core.settings import Runtime
from fne.core.terminal import say
from fne.extraction.computer import LocalComputer
from fne.extraction.extractor import Extractor
from fne.extraction.finished_rows import Scratch
from fne.extraction.read_images import ImageFiles
from fne.extraction.recorded_extractor import open_extractor
from fne.extraction.run import Report, check_finite, extract
from fne.extraction.sentence_vectors import SETTING, open_sentence_vectors
from fne.extraction.text_networks import find_network, open_text_network
from fne.features.embeddings import EMBEDDINGS, Embedding
from fne.features.embeddings import Choices as EmbeddingChoices
from fne.features.standardize import Statistics, read_statistics
from fne.finetuning.encode import tuned_extractor
from fne.matching.encode import encode_sentences
from fne.matching.model import Matcher
from fne.matching.model_file import MODELS, read_model, require_same_model
from fne.matching.numpy_model import Similarity
from fne.matching.similarities import OF_ANY_LENGTH, SIMILARITIES
from fne.search.folder import RowSource
from fne.search.open_project import ExternalImage, Project
from fne.store.artifact import Artifact, merge
from fne.store.catalog import Image
from fne.store.images import decode_bytes
from fne.store.layout import Layer, Manifest, mean_of_views
from fne.store.rows import Rows

BLOCK = 256  # rows
KEPT = "for the index, so that the next search of this folder starts at once"
WARM_UP_SIDE = 256  # pixels

# Maps sentences to vectors (sentences, dim), or to rows.
Reader = Callable[[Sequence[str]], np.ndarray]
# Called with the progress, if there is something to compute.
Watch = Callable[[Progress], None]


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

    def embed_picture(self, sha256: str, picture: Picture) -> np.ndarray:
        """Return the embedding of a decoded photo, whose activations are not kept."""
        finished = self.scratch.rows([sha256]).get(sha256)
        row = self._activations(picture, "the photo") if finished is None else finished
        embedded: np.ndarray = self.embedding.transform(row[None])[0]
        return embedded

    def prepare(self, images: Sequence[Image], root: Path, watch: Watch | None = None) -> None:
        """Compute the activations of many images; finished ones are kept if this is interrupted."""
        files = ImageFiles(images, root, self.extractor.resize)
        computer = LocalComputer(self.extractor.device, self.runtime.batch, self.runtime.workers)
        report = Report(partial(say, err=True), "indexing photos", KEPT, watch)
        extract(files, self.extractor, self.scratch, computer, report)

    def rows(self, digests: Sequence[str]) -> np.ndarray:
        """Return the embeddings of prepared images, given the digests of their files."""
        finished = self.scratch.rows(digests)
        blocks = [np.empty((0, sum(layer.features for layer in self.embedding.layers)), dtype=np.float32)]
        for start in range(0, len(digests), BLOCK):
            activations = np.stack([finished[digest] for digest in digests[start : start + BLOCK]])
            blocks.append(self.embedding.transform(activations))
        return np.concatenate(blocks)

    def _activations(self, picture: Picture, name: str) -> np.ndarray:
        row: np.ndarray = self.extractor.compute([self.extractor.resize(picture)])[0]
        check_finite(row, name, self.extractor.layers)
        return row

    def _compute(self, image: ExternalImage) -> np.ndarray:
        row = self._activations(decode_bytes(image.content), str(image.file))
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
    """Open what computed the embeddings that `origin` holds or was made from; other files are refused.

    Args:
        origin: the embeddings, or a model that was trained on them.
        statistics: the file that `standardize` wrote.
        scratch: where finished activations are kept.
        extractor: that of a tuned network; without it, `origin` names the network.
    """
    extractor = extractor or open_extractor(origin, weights, runtime)
    ordinary, fitted = read_statistics(statistics)
    recorded = merge(origin, fitted)["embeddings"]["settings"]
    layers = [(layer.name, layer.features) for layer in extractor.layers]
    embedding = _embedding(origin, layers, recorded, ordinary)
    finished = Scratch(scratch / "activations", extractor.kind, extractor.features)
    return Embedder(extractor, embedding, finished, runtime)


def _embedding(
    origin: Artifact, layers: list[tuple[str, int]], recorded: Mapping[str, Any], ordinary: Statistics
) -> Embedding:
    """Return the embedding with recorded settings, by a store without rows: it needs only the layers."""
    manifest = Manifest(
        name="activations", settings={}, lineage={}, dtype="float32", layers=layers, shards=[]
    )
    rows = Rows(Artifact(origin.path, "activations", ""), manifest)
    return EMBEDDINGS[recorded["kind"]](rows, ordinary, EmbeddingChoices.recorded(recorded))


@dataclass(frozen=True)
class Network:
    """From a photo to its embedding, and to its vector in the joint space."""

    embedder: Embedder  # computes embeddings like those of the catalog
    reader: Embedder  # computes what the model reads: the same, unless the image network was tuned
    matcher: Matcher | None
    describing: Mapping[str, Embedder] = field(default_factory=dict)  # of tuned models, by names in `PARTS`

    def embed(self, sha256: str, picture: Picture) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the embedding (features) of a photo and its vector (dim), if any; keep no activations."""
        embedded = self.embedder.embed_picture(sha256, picture)
        if self.matcher is None:
            return embedded, None
        same = self.reader is self.embedder
        read = embedded if same else self.reader.embed_picture(sha256, picture)
        return embedded, embed_rows(self.matcher, read[None])[0]

    def rows_of_tuned(self, sha256: str, picture: Picture) -> dict[str, np.ndarray]:
        """Return what each tuned tagger and captioner reads of a photo (features)."""
        return {name: each.embed_picture(sha256, picture) for name, each in self.describing.items()}

    def vectors(self, images: Sequence[ExternalImage]) -> np.ndarray:
        """Return the vectors (images, dim) of image files; there must be a model."""
        assert self.matcher
        return embed_rows(self.matcher, np.stack([self.reader.embed(image) for image in images]))

    def warm_up(self) -> None:
        """Embed an empty photo, so that the first real one does not wait for compilers and libraries."""
        picture = new_picture("RGB", (WARM_UP_SIDE, WARM_UP_SIDE))
        self.embed("", picture)
        self.rows_of_tuned("", picture)

    def embedding_source(self, dtype: str, watch: Watch | None = None) -> RowSource:
        """Return what computes the embeddings of a folder's photos."""
        prepare = partial(self.embedder.prepare, watch=watch)
        return RowSource(self.embedder.embedding.layers, dtype, prepare, self.embedder.rows)

    def vector_source(self, watch: Watch | None = None) -> RowSource:
        """Return what computes the vectors of a folder's photos; there must be a model."""
        matcher = self.matcher
        assert matcher

        def rows(digests: Sequence[str]) -> np.ndarray:
            return embed_rows(matcher, self.reader.rows(digests))

        layers = [Layer("joint", matcher.shape.embed_dim)]
        return RowSource(layers, "float32", partial(self.reader.prepare, watch=watch), rows)


def open_network(
    project: Project,
    embeddings: Artifact | None,
    model: tuple[Matcher, Artifact] | None,
    threaded: bool = False,
    describing: Mapping[str, Artifact] | None = None,
) -> Network:
    """Load what computes embeddings like some, and vectors of a model, tuned or not; one of them is given.

    `describing` has tuned taggers and captioners, whose networks are loaded, too.
    With `threaded`, several threads may ask for rows, such as a photo of a visitor and the index of a folder:
    they take turns by batches.
    """
    # Processes that read ahead would be forks of a process with threads.
    runtime = project.runtime.model_copy(update={"workers": 0}) if threaded else project.runtime
    lock = threading.Lock()

    def opened(origin: Artifact, extractor: Extractor | None = None) -> Embedder:
        files = project.weights, project.statistics
        found = open_embedder(origin, *files, runtime, project.scratch, extractor)
        return replace(found, extractor=_one_at_a_time(found.extractor, lock)) if threaded else found

    def opened_tuned(origin: Artifact) -> Embedder:
        return opened(origin, tuned_extractor(origin, runtime)[0])

    embedder = opened(embeddings) if embeddings else None
    tuned = {name: opened_tuned(each) for name, each in (describing or {}).items()}
    if model is None:
        assert embedder
        return Network(embedder, embedder, None, tuned)
    matcher, origin = model
    reader = opened_tuned(origin) if origin.name == MODELS[0] else embedder or opened(origin)
    return Network(embedder or reader, reader, matcher, tuned)


def open_model_network(project: Project, artifact: Artifact) -> Network:
    """Load what computes vectors of the joint space of `artifact`: the model in use, or made with it."""
    matcher, origin = read_model(project.model)
    merge(origin, artifact)
    require_same_model(origin, artifact)
    return open_network(project, None, (matcher, origin))


def open_served_network(
    project: Project,
    embeddings: Artifact | None,
    model: Artifact | None,
    describing: Mapping[str, Artifact] | None = None,
) -> Network:
    """Load the network of a server's snapshot, with the very models that it has loaded."""
    found = read_model(model.path) if model else None
    if model and found and found[1].digest != model.digest:
        raise InputError(f"{model.path} has been replaced; the new artifacts are loaded in a moment")
    return open_network(project, embeddings, found, threaded=True, describing=describing)


def sentence_reader(project: Project, origin: Artifact, model: Artifact | None) -> Reader:
    """Load the text network behind rows of captions, and return what maps sentences to vectors.

    Args:
        origin: what the rows were made into: a model, or an imported store of captions.
        model: the model that maps the rows into the joint space; None if they are of that space.
    """
    recorded = origin.lineage.get("caption_features", {}).get("settings") or origin.settings
    rows = (
        _imported_rows(project, origin, recorded) if SETTING in recorded else _extracted_rows(project, origin)
    )
    if "caption_embeddings" in origin.lineage:
        chosen, whole = origin.lineage["caption_embeddings"]["settings"], rows
        ordinary, fitted = read_statistics(project.text_statistics, of_captions=True)
        merge(origin, fitted)
        layers = [(layer.name, layer.features) for layer in whole.layers]
        embedding = _embedding(origin, layers, chosen, ordinary)
        rows = replace(whole, encode=lambda sentences: embedding.transform(whole.encode(sentences)))
    if model is None:
        return rows.encode
    matcher, found = read_model(model.path)
    merge(model, found)
    matcher.eval()

    @torch.no_grad()
    def encode(sentences: Sequence[str]) -> np.ndarray:
        own = torch.from_numpy(rows.encode(sentences).astype(np.float32))
        vectors: np.ndarray = matcher.embed_captions(own, torch.ones(len(own), dtype=torch.int64)).numpy()
        return vectors

    return encode


@dataclass(frozen=True)
class _SentenceRows:
    """What maps sentences to rows (sentences, features), and the layers of these."""

    encode: Reader
    layers: list[Layer]


def _extracted_rows(project: Project, origin: Artifact) -> _SentenceRows:
    recorded = origin.lineage["caption_features"]["settings"]
    merge(origin, find_network(project.text_network)[0])  # before it is loaded
    network = open_text_network(project.text_network, recorded["tokens"])
    for key in ("positions", "text_extractor", "transformers"):
        if recorded[key] != network.kind[key]:
            raise InputError(
                f"{origin.path} was made with {key} {recorded[key]} of its text network, but this is "
                f"{network.kind[key]}; run `dvc repro pipelines/text_network/dvc.yaml:extract_text`"
            )

    def encode(sentences: Sequence[str]) -> np.ndarray:
        rows = []
        for sentence in sentences:
            numbers, cut = network.number([sentence])
            if cut:
                say(f"the sentence has more than {network.positions} tokens and is cut", err=True)
            rows.append(network.rows(numbers)[0])
        return np.stack(rows)

    return _SentenceRows(encode, network.layers)


def _imported_rows(project: Project, origin: Artifact, recorded: Mapping[str, Any]) -> _SentenceRows:
    place = project.path(recorded[SETTING])
    merge(origin, find_network(place)[0])
    encode = open_sentence_vectors(place).encode
    return _SentenceRows(encode, [Layer("joint", encode(["a"]).shape[1])])


@torch.no_grad()
def embed_rows(matcher: Matcher, rows: np.ndarray) -> np.ndarray:
    """Return the vectors (rows, embed_dim) of images in the joint space, given their embeddings."""
    matcher.eval()
    averaged = mean_of_views(rows.astype(np.float32), rows.shape[1] // matcher.shape.features)
    vectors: np.ndarray = matcher.embed_images(torch.from_numpy(averaged)).numpy()
    return vectors


def torch_encoder(model: Artifact) -> Callable[[Sequence[Sequence[int]]], np.ndarray]:
    """Load a model, and return what maps word numbers of sentences to vectors (sentences, embed_dim)."""
    matcher, found = read_model(model.path)
    merge(model, found)  # the file may have been replaced meanwhile
    return partial(encode_sentences, matcher)


def torch_similarity(name: str, any_length: bool = False) -> Similarity:
    """Return a similarity; `fne.matching.numpy_model` has its interface."""
    similarity = (OF_ANY_LENGTH if any_length else SIMILARITIES)[name]

    def scores(images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        found: np.ndarray = similarity(torch.from_numpy(images), torch.from_numpy(captions)).numpy()
        return found.ravel()

    return scores


def _one_at_a_time(extractor: Extractor, lock: threading.Lock) -> Extractor:
    def guarded(images: Tensor) -> Tensor:
        with lock:
            return extractor.rows(images)

    return replace(extractor, rows=guarded)
