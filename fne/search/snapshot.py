"""One consistent set of artifacts, in memory.

A `Snapshot` is loaded as a whole and never changes. Digests decide whether its parts belong together, so
answers never mix artifacts of two runs. `fingerprint` changes when a file of the project has been replaced:
that is when another snapshot may be loaded.

A part whose files are missing is left out, and `Snapshot.notes` says what to run. `dvc repro` removes
outputs before it makes them again, so a snapshot that lacks a part of an earlier one must not replace it:
see `Snapshot.lost`.
"""

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from fne.core.errors import InputError
from fne.describing.model_file import DescriberFile
from fne.matching.model_file import ModelFile, read_model_file, require_same_model
from fne.search.describe_photo import PARTS
from fne.search.numpy_model import PREFIX
from fne.search.open_project import CatalogContents, Project
from fne.store.artifact import Artifact, Lineage, merge
from fne.store.catalog import SPLITS, Image
from fne.store.layout import MANIFEST, Layer
from fne.store.rows import Rows
from fne.text.vocabulary import Vocabulary, read_vocabulary

EXAMPLES, EXAMPLE_LENGTH = 3, 60  # captions, and their characters
SAMPLES = 24  # images

# How to make the parts that a project may lack.
MADE_BY = {
    "embeddings": "look-alikes need features/embeddings; run `dvc repro embed`",
    "model": "sentences need models/matching.safetensors and vectors/; run `dvc repro encode`",
}


@dataclass(frozen=True)
class Space:
    """Rows in memory, sorted by id.

    Attributes:
        artifact: the store that they are from.
        ids: the id of each row.
        rows: the rows as stored (ids, numbers): bit planes if they are ternary.
        layers: the named ranges of columns.
        dtype: the type of the store.
    """

    artifact: Artifact
    ids: list[str]
    rows: np.ndarray
    layers: list[Layer]
    dtype: str

    @classmethod
    def read(cls, store: Rows, ids: list[str]) -> "Space":
        """Read the rows of `ids`, which decide the order."""
        return cls(store.artifact, ids, store.read_stored(ids), store.layers, store.dtype)

    @cached_property
    def places(self) -> dict[str, int]:
        """The position of each row."""
        return {row_id: place for place, row_id in enumerate(self.ids)}

    @property
    def features(self) -> int:
        """The number of columns."""
        return sum(layer.features for layer in self.layers)


@dataclass(frozen=True)
class Joint:
    """The trained model with the weights of its text encoder, and the vectors of images and captions."""

    model: ModelFile
    vocabulary: Vocabulary
    images: Space
    captions: Space

    @property
    def similarity(self) -> str:
        """The name of the similarity."""
        return str(self.model.shape["similarity"])


@dataclass(frozen=True)
class Snapshot:
    """All artifacts that a server uses.

    Attributes:
        version: a digest of all parts, which names the set in answers.
        catalog: images and captions.
        lineage: what the parts were made from.
        embeddings: the embeddings of the images, or None.
        joint: the trained model and its vectors, or None.
        describers: the taggers and captioners that belong to the embeddings, by their names in `PARTS`.
        notes: what is missing, and how to make it.
    """

    version: str
    catalog: CatalogContents
    lineage: Lineage
    embeddings: Space | None
    joint: Joint | None
    describers: dict[str, DescriberFile]
    notes: list[str] = field(default_factory=list)

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
        parts = {"embeddings": self.embeddings is None, "model": self.joint is None}
        had = {"embeddings": earlier.embeddings is not None, "model": earlier.joint is not None}
        return [name for name, missing in parts.items() if missing and had[name]]

    def prepare(self) -> None:
        """Compute what the first answers would have to wait for."""
        _ = self.by_digest, self.by_caption, self.splits, self.tags, self.examples, self.samples
        for space in (self.embeddings, *((self.joint.images, self.joint.captions) if self.joint else ())):
            _ = space and space.places


def normalized(text: str) -> str:
    """Return a sentence without differences of case and spaces."""
    return " ".join(text.casefold().split())


def load_snapshot(params: Path) -> Snapshot:
    """Read all artifacts of a project.

    Raises:
        InputError: if the catalog is missing, or if parts are damaged or do not belong together.
    """
    project = Project(params)
    catalog = project.catalog
    notes: list[str] = []
    embeddings = _embeddings(project, catalog)
    joint = _joint(project, catalog)
    artifacts = [*catalog.artifacts]
    if embeddings:
        artifacts.append(embeddings.artifact)
    else:
        notes.append(MADE_BY["embeddings"])
    if joint:
        parts = (joint.model, joint.vocabulary, joint.images, joint.captions)
        artifacts += [part.artifact for part in parts]
    else:
        notes.append(MADE_BY["model"])
    if not embeddings and not joint:
        raise InputError(f"{params}: there is nothing to search yet: {'; '.join(notes)}")
    lineage = merge(*artifacts)
    describers = {}
    for name, part in PARTS.items():
        path = project.path(part.model)
        if not path.exists() or embeddings is None:
            notes.append(f"no {' and '.join(part.says)}; `dvc repro {part.pipeline}` makes {part.model}")
            continue
        try:
            file = part.read(path)
            merge(*artifacts, file.artifact)
            describers[name] = file
        except InputError as error:
            notes.append(f"no {' and '.join(part.says)}: {error.message}")
    digests = [artifact.digest for artifact in artifacts]
    digests += [file.artifact.digest for file in describers.values()]
    version = hashlib.sha256("\n".join(digests).encode()).hexdigest()[:16]
    found = Snapshot(version, catalog, lineage, embeddings, joint, describers, notes)
    found.prepare()
    return found


def fingerprint(params: Path) -> tuple[tuple[str, int, int, int], ...]:
    """Return what changes when an artifact of a project is replaced: its inode, size and time of change."""
    project = Project(params)
    stores = [project.embeddings, project.image_vectors, project.caption_vectors]
    paths = [
        params,
        project.path("data/images.jsonl"),
        project.path("data/captions.jsonl"),
        project.vocabulary,
        project.model,
        project.tuned,
        *(project.path(part.model) for part in PARTS.values()),
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


def _embeddings(project: Project, catalog: CatalogContents) -> Space | None:
    if not (project.embeddings / MANIFEST).exists():
        return None
    store = Rows.open(project.embeddings, "embeddings")
    merge(store.artifact, *catalog.artifacts)
    return Space.read(store, _image_ids(catalog, store)) if store.without_rows is None else None


def _joint(project: Project, catalog: CatalogContents) -> Joint | None:
    stores = (project.image_vectors / MANIFEST, project.caption_vectors / MANIFEST)
    if not all(path.exists() for path in (project.model, project.vocabulary, *stores)):
        return None
    model = read_model_file(project.current_model, PREFIX)
    vocabulary = read_vocabulary(project.vocabulary)
    images = Rows.open(project.image_vectors, "image_vectors")
    captions = Rows.open(project.caption_vectors, "caption_vectors")
    merge(model.artifact, vocabulary.artifact, images.artifact, captions.artifact, *catalog.artifacts)
    require_same_model(model.artifact, images.artifact, captions.artifact)
    return Joint(
        model,
        vocabulary,
        Space.read(images, _image_ids(catalog, images)),
        Space.read(captions, sorted(captions.ids)),
    )


def _image_ids(catalog: CatalogContents, store: Rows) -> list[str]:
    """Return the images of the catalog that have a row; an imported store may have more."""
    return sorted(catalog.captioned.keys() & set(store.ids))
