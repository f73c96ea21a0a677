"""One consistent set of a project's artifacts: what a query needs, memory-mapped, or all of it, in memory.

A `Snapshot` is opened as a whole and never changes. Digests decide whether its parts belong together, so
answers never mix artifacts of two runs. A command opens the parts that its query needs (`open_for_sentence`,
`open_for_image`, `open_embeddings`). A server loads everything (`load_snapshot`), and again when
`fingerprint` changes, which says that a file of the project has been replaced.

A part whose files are missing is left out by `load_snapshot`, and `Snapshot.notes` says what to run. `dvc
repro` removes outputs before it makes them again, so a snapshot that lacks a part of an earlier one must not
replace it: see `Snapshot.lost`.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from pathlib import Path

import numpy as np

from fne.core.errors import InputError
from fne.core.settings import load_section
from fne.describing.model_file import DescribingFile
from fne.evaluation.imported import Imported, open_sides
from fne.matching.model_file import FINETUNING, ModelFile, read_model_file, require_same_model
from fne.matching.numpy_model import (
    PREFIX,
    SIMILARITY,
    TEXT_ENCODER,
    Similarity,
    cosine,
    embed_sentences,
)
from fne.matching.word_removal import Encoder
from fne.search.bit_planes import ternary_products
from fne.search.describe_photo import PARTS, TUNED_PARTS
from fne.search.open_project import (
    IMPORTED,
    MATCHING,
    TUNED,
    CatalogContents,
    Project,
    Space,
    caption_space,
    image_space,
    normalized,
)
from fne.store.artifact import Artifact, Lineage, merge
from fne.store.catalog import SPLITS, Image
from fne.store.layout import MANIFEST
from fne.store.rows import Rows
from fne.text.caption_vectors import has_caption_rows
from fne.text.vocabulary import Vocabulary, read_vocabulary

# The text network in a lineage, as `fne.extraction.text_networks` names it.
TEXT_NETWORK = "text_network"
EXAMPLES, EXAMPLE_LENGTH = 3, 60  # captions, and their characters
SAMPLES = 24  # images


# How to make the parts that a project may lack.
MADE_BY = {
    "embeddings": "look-alikes need features/embeddings; run `dvc repro embed`",
    MATCHING: "sentences need models/matching/model.safetensors and vectors/; run `dvc repro encode`",
    TUNED: f"sentences need models/tuned.safetensors and vectors/tuned/; run `dvc repro {FINETUNING}`",
}


@dataclass(frozen=True)
class Snapshot:
    """Artifacts that belong together."""

    catalog: CatalogContents
    lineage: Lineage  # what the parts were made from
    embeddings: Space | None = None
    model: ModelFile | None = None
    vocabulary: Vocabulary | None = None
    images: Space | None = None  # vectors in the joint space
    captions: Space | None = None  # vectors in the joint space
    describing: dict[str, DescribingFile] = field(default_factory=dict)  # by their names in `PARTS`
    notes: list[str] = field(default_factory=list)  # what is missing, and how to make it
    version: str = ""  # a digest of all parts, which names the set in answers of a server
    count_bits: Callable[[np.ndarray, np.ndarray], np.ndarray] = ternary_products
    imported: str | None = None  # the similarity of imported vectors; then there is no model
    # Maps sentences to vectors by a text network; None for a model of words, or if the network is unknown.
    reader: Callable[[Sequence[str]], np.ndarray] | None = None

    @cached_property
    def similarity(self) -> str:
        """The name of the similarity of the model."""
        named = self.model.shape if self.model else self._trained_with
        return self.imported or str(named["similarity"])

    @cached_property
    def compare(self) -> Similarity:
        """The similarity; only that of the default model needs no torch."""
        if self.similarity == SIMILARITY and self.imported is None:
            return cosine
        from fne.search.embed_query import torch_similarity  # torch: slow to import

        return torch_similarity(self.similarity, any_length=self.imported is not None)

    @cached_property
    def encoder(self) -> Encoder | None:
        """What encodes words; None if the model reads rows of captions."""
        if self.model is None or without_encoder(self.model.artifact):
            return None
        return sentence_encoder(self.model)

    @property
    def _trained_with(self) -> dict[str, object]:
        return self.lineage["model"]["settings"] if "model" in self.lineage else {}

    @cached_property
    def by_digest(self) -> dict[str, Image]:
        """The images of the catalog by the digests of their files."""
        return {image.sha256: image for image in self.catalog.images.values()}

    @cached_property
    def by_caption(self) -> dict[str, set[str]]:
        """The images that have a sentence as a caption, by the normalized sentence."""
        found: dict[str, set[str]] = {}
        for record in self.catalog.captioned.values():
            for caption in record.captions:
                found.setdefault(normalized(caption), set()).add(record.id)
        return found

    @cached_property
    def splits(self) -> dict[str, int]:
        """The number of images of each split that has any."""
        counts = Counter(record.split for record in self.catalog.captioned.values())
        return {split: counts[split] for split in SPLITS if counts[split]}

    @cached_property
    def tags(self) -> dict[str, int]:
        """The number of images with each tag, the most frequent first."""
        counts = Counter(tag for record in self.catalog.captioned.values() for tag in set(record.tags))
        return dict(sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])))

    @cached_property
    def examples(self) -> list[str]:
        """Captions of different images, for a first try; if possible of images that were not trained on."""
        captioned = [record for record in self.catalog.captioned.values() if record.captions]
        held_out = [record for record in captioned if record.split != SPLITS[0]]
        texts = dict.fromkeys(record.captions[0] for record in (held_out or captioned))
        return [text for text in texts if len(text) <= EXAMPLE_LENGTH][:EXAMPLES]

    @cached_property
    def samples(self) -> list[str]:
        """Images with a picture, from all parts of the catalog, for a first look."""
        shown = [each for each in self.catalog.captioned if each in self.catalog.images]
        count = min(SAMPLES, len(shown))
        return [shown[place * len(shown) // count] for place in range(count)]

    def lost(self, earlier: "Snapshot") -> list[str]:
        """Return the parts that an earlier snapshot has and this one does not."""
        return [
            name
            for name in ("embeddings", "model")
            if getattr(self, name) is None and getattr(earlier, name) is not None
        ]

    def prepare(self) -> None:
        """Compute what the first answers would have to wait for."""
        _ = self.by_digest, self.by_caption, self.splits, self.tags, self.examples, self.samples
        for space in (self.embeddings, self.images, self.captions):
            _ = space and space.places
        if self.model:
            _ = self.compare, self.encoder


def without_encoder(model: Artifact) -> bool:
    """Return whether a model reads rows of captions in place of words."""
    return has_caption_rows(model.lineage)


def network_reader(
    project: Project, origin: Artifact, model: Artifact | None = None
) -> Callable[[Sequence[str]], np.ndarray] | None:
    """Return what maps sentences to vectors by the text network behind rows, loaded when it is needed.

    None if that network is unknown. Arguments are those of `fne.search.embed_query.sentence_reader`.
    """
    if TEXT_NETWORK not in origin.lineage:
        return None

    @cache
    def opened() -> Callable[[Sequence[str]], np.ndarray]:
        from fne.search.embed_query import sentence_reader  # torch: slow to import

        return sentence_reader(project, origin, model)

    return lambda sentences: opened()(sentences)


def sentence_encoder(model: ModelFile) -> Encoder:
    """Return what encodes sentences with a model; only the default text encoder needs no torch."""
    if model.shape["text_encoder"] == TEXT_ENCODER:
        return partial(embed_sentences, model)
    from fne.search.embed_query import torch_encoder  # torch: slow to import

    return torch_encoder(model.artifact)


def open_for_sentence(project: Project, in_folder: bool) -> Snapshot:
    """Open what a sentence needs: the model and, unless a folder is searched, the vectors of images."""
    vocabulary = read_vocabulary(project.vocabulary)
    model = read_model_file(project.model, PREFIX)
    lineage = merge(model.artifact, vocabulary.artifact)
    catalog, images, captions, reader = project.catalog, None, None, None
    if without_encoder(model.artifact):
        reader = network_reader(project, model.artifact, model.artifact)
        captions = caption_space(catalog, project.open_caption_vectors(), False)
    if not in_folder:
        store = project.open_image_vectors()
        lineage = merge(model.artifact, vocabulary.artifact, store.artifact, *catalog.artifacts)
        require_same_model(model.artifact, store.artifact)
        images = image_space(catalog, store, False)
    return Snapshot(catalog, lineage, None, model, vocabulary, images, captions, reader=reader)


def open_for_image(project: Project, with_model: bool = False) -> Snapshot:
    """Open what an image needs that sentences are searched for, but the vectors of images."""
    catalog = project.catalog
    store = project.open_caption_vectors()
    model = vocabulary = None
    artifacts = [store.artifact, *catalog.artifacts]
    if with_model:
        vocabulary, model = read_vocabulary(project.vocabulary), read_model_file(project.model, PREFIX)
        artifacts += [vocabulary.artifact, model.artifact]
        require_same_model(model.artifact, store.artifact)
    captions = caption_space(catalog, store, False)
    return Snapshot(catalog, merge(*artifacts), None, model, vocabulary, captions=captions)


def open_embeddings(project: Project) -> Snapshot:
    """Open what a search for similar images needs."""
    catalog = project.catalog
    store = Rows.open(project.embeddings, "embeddings")
    lineage = merge(store.artifact, *catalog.artifacts)
    return Snapshot(catalog, lineage, image_space(catalog, store, False))


def open_imported(project: Project) -> Snapshot:
    """Open imported vectors of both sides: what makes those of a new photo is unknown."""
    catalog = project.catalog
    sides = open_sides(load_section(project.params, IMPORTED, Imported), project.params.parent)
    lineage = merge(sides.images.artifact, sides.captions.artifact, *catalog.artifacts)
    spaces = image_space(catalog, sides.images, False), caption_space(catalog, sides.captions, False)
    reader = network_reader(project, sides.captions.artifact)
    return Snapshot(
        catalog, lineage, images=spaces[0], captions=spaces[1], imported=sides.similarity, reader=reader
    )


def load_snapshot(params: Path, model: str = MATCHING) -> Snapshot:
    """Read all artifacts of a project into memory, with one of its models.

    Raises:
        InputError: if the catalog is missing, or if parts are damaged or do not belong together.
    """
    from fne.search.bit_kernels import ternary_products  # numba: slow to import

    project = Project(params, model)
    catalog = project.catalog
    notes: list[str] = []
    embeddings = _load_embeddings(project, catalog)
    file, vocabulary, images, captions = _load_model(project, catalog)
    artifacts = [*catalog.artifacts]
    parts = (embeddings, file, vocabulary, images, captions)
    artifacts += [part.artifact for part in parts if part]
    notes += [MADE_BY["embeddings"]] * (embeddings is None) + [MADE_BY[model]] * (file is None)
    if not embeddings and not file:
        raise InputError(f"{params}: there is nothing to search yet: {'; '.join(notes)}")
    lineage = merge(*artifacts)
    describing = {}
    for name, fixed in PARTS.items():
        tuned = TUNED_PARTS[name]
        part = tuned if model == TUNED and project.path(tuned.model).exists() else fixed
        path = project.path(part.model)
        if not path.exists() or embeddings is None:
            notes.append(f"no {' and '.join(part.says)}; `dvc repro {part.pipeline}` makes {part.model}")
            continue
        try:
            file_of_part = part.read(path)
            merge(*artifacts, file_of_part.artifact)
            describing[name] = file_of_part
            if model == TUNED and part is fixed:
                notes.append(
                    f"{name} are those of the fixed network; `dvc repro {tuned.pipeline}` makes {tuned.model}"
                )
        except InputError as error:
            notes.append(f"no {' and '.join(part.says)}: {error.message}")
    digests = [artifact.digest for artifact in artifacts]
    digests += [each.artifact.digest for each in describing.values()]
    version = hashlib.sha256("\n".join(digests).encode()).hexdigest()[:16]
    reader = network_reader(project, file.artifact, file.artifact) if file else None
    if reader:
        try:
            reader(["a"])  # so that the first sentence does not wait for the network
        except InputError as error:
            reader = None
            notes.append(f"no new sentences: {error.message}")
    found = Snapshot(catalog, lineage, *parts, describing, notes, version, ternary_products, reader=reader)
    found.prepare()
    return found


def fingerprint(params: Path, model: str = MATCHING) -> tuple[tuple[str, int, int, int], ...]:
    """Return what changes when an artifact of a project is replaced: its inode, size and time of change."""
    project = Project(params, model)
    stores = [project.embeddings, project.image_vectors, project.caption_vectors]
    paths = [
        params,
        project.path("data/images.jsonl"),
        project.path("data/captions.jsonl"),
        project.vocabulary,
        project.model,
        *(project.path(part.model) for part in (*PARTS.values(), *TUNED_PARTS.values())),
        *stores,
        *(store / MANIFEST for store in stores),
    ]
    return tuple(_state(path) for path in paths)


def _state(path: Path) -> tuple[str, int, int, int]:
    try:
        status = path.stat()
    except OSError:
        return (path.name, 0, 0, 0)
    return (path.name, status.st_ino, status.st_size, status.st_ctime_ns)


def _load_embeddings(project: Project, catalog: CatalogContents) -> Space | None:
    if not (project.embeddings / MANIFEST).exists():
        return None
    store = Rows.open(project.embeddings, "embeddings")
    merge(store.artifact, *catalog.artifacts)
    return image_space(catalog, store, True) if store.without_rows is None else None


def _load_model(
    project: Project, catalog: CatalogContents
) -> tuple[ModelFile | None, Vocabulary | None, Space | None, Space | None]:
    stores = (project.image_vectors / MANIFEST, project.caption_vectors / MANIFEST)
    if not all(path.exists() for path in (project.model, project.vocabulary, *stores)):
        return None, None, None, None
    model = read_model_file(project.model, PREFIX)
    vocabulary = read_vocabulary(project.vocabulary)
    images = project.open_image_vectors()
    captions = project.open_caption_vectors()
    merge(model.artifact, vocabulary.artifact, images.artifact, captions.artifact, *catalog.artifacts)
    require_same_model(model.artifact, images.artifact, captions.artifact)
    spaces = image_space(catalog, images, True), caption_space(catalog, captions, True)
    return model, vocabulary, *spaces
