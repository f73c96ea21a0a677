"""What a search works with: where a project's artifacts are, the catalog, rows that are compared, the query.

A `Space` holds the rows of a store, memory-mapped for a command or in memory for a server. `parse_query`
decides what an argument of `fne search` is. Only an image file that the catalog does not have needs Pillow,
which is imported where it is used.
"""

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np

from fne.core import stat_cache
from fne.core.errors import InputError
from fne.core.settings import Runtime, load_key, load_params, load_runtime, load_section, not_one_of
from fne.datasets.readers.folder import SUFFIXES
from fne.extraction.text_settings import ExtractText
from fne.matching.model_file import FINETUNING
from fne.store.artifact import Artifact
from fne.store.catalog import SPLITS, Captioned, Image, image_root, read_captions, read_images
from fne.store.rows import Rows

PARAMS = "params.yaml"
MATCHING, TUNED, IMPORTED = "matching", "tuned", "imported"
# The file of each model that can be searched with, and the folder of its vectors.
MODELS = {
    MATCHING: ("models/matching/model.safetensors", "vectors"),
    TUNED: ("models/tuned.safetensors", "vectors/tuned"),
}
BLOCK, BLOCK_IN_MEMORY = 1024, 4096  # rows


@dataclass(frozen=True)
class CatalogContents:
    """The catalog: images and captions by image id, and the folder of the image files."""

    images: dict[str, Image]
    captioned: dict[str, Captioned]
    root: Path
    artifacts: list[Artifact]
    name: ClassVar[str] = "the catalog"
    unreadable: ClassVar[dict[str, str]] = {}  # as a folder has them

    @cached_property
    def ids(self) -> list[str]:
        """All image ids, in the order of the catalog."""
        return list(self.captioned)

    def file(self, image_id: str) -> Path | None:
        """Return the path of an image, or None if the catalog has only its features."""
        image = self.images.get(image_id)
        return self.root / image.path if image else None

    def sentences(self, image_id: str) -> list[str]:
        """Return the captions of an image; none for an image of the gallery."""
        record = self.captioned.get(image_id)
        return list(record.captions) if record else []

    def check_filters(self, split: str | None, tag: str | None) -> None:
        """Refuse a split that the catalog does not have, and a tag that no image of the split has."""
        records = self.captioned.values()
        splits = [each for each in SPLITS if any(record.split == each for record in records)]
        if split is not None and split not in splits:
            raise InputError(f"--split: {not_one_of(split, splits)}")
        found = (tag in record.tags for record in records if split in (None, record.split))
        if tag is not None and not any(found):
            tags = sorted({each for record in records for each in record.tags})
            similar = get_close_matches(tag, tags, 3) or tags[:3]
            known = f"has tags such as {', '.join(similar)}" if tags else "has no tags"
            place = f" of {split}" if split else ""
            raise InputError(f"--tag: no image{place} has the tag {tag!r}; the catalog {known}")


@dataclass(frozen=True)
class Space:
    """Rows that a query is compared with, in the order of their ids."""

    store: Rows
    ids: Sequence[str]
    images: Sequence[str]  # the image of each row: for captions not the same as the id
    keys: Sequence[str]  # the id of each row in the store: for photos of a folder the digest of the file
    splits: np.ndarray | None = None  # the number in `SPLITS` of each row's split; None outside the catalog
    rows: np.ndarray | None = None  # as stored (bit planes if ternary), or None if they are read when needed

    @property
    def artifact(self) -> Artifact:
        """The store as an artifact."""
        return self.store.artifact

    @cached_property
    def places(self) -> dict[str, int]:
        """The position of each row."""
        return {row_id: place for place, row_id in enumerate(self.ids)}

    def row(self, row_id: str) -> np.ndarray | None:
        """Return a row as stored, or None if there is none."""
        place = self.places.get(row_id)
        if place is None:
            return None
        found: np.ndarray = (
            self.store.read_stored([self.keys[place]])[0] if self.rows is None else self.rows[place]
        )
        return found

    def score(self, places: np.ndarray, compare: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """Return the scores of the rows at some places; `compare` maps rows as stored to their scores (rows).

        Rows in memory are all scored, because copying the chosen ones would take longer.
        """
        if self.rows is not None:
            starts = range(0, len(self.rows), BLOCK_IN_MEMORY)
            blocks = (self.rows[start : start + BLOCK_IN_MEMORY] for start in starts)
            scores: np.ndarray = _concatenated([compare(block) for block in blocks])[places]
            return scores
        keys = [self.keys[place] for place in places.tolist()]
        chosen = (keys[start : start + BLOCK] for start in range(0, len(keys), BLOCK))
        return _concatenated([compare(self.store.read_stored(each)) for each in chosen])


def image_space(catalog: CatalogContents, store: Rows, in_memory: bool) -> Space:
    """Return the images of the catalog that have a row; an imported store may have more."""
    ids = sorted(catalog.captioned.keys() & set(store.ids))
    return _catalog_space(catalog, store, ids, ids, in_memory)


def caption_space(catalog: CatalogContents, store: Rows, in_memory: bool) -> Space:
    """Return the captions of the catalog that have a row."""
    pairs = [(each, each.rsplit("#", 1)[0]) for each in sorted(store.ids)]
    pairs = [pair for pair in pairs if pair[1] in catalog.captioned]
    return _catalog_space(
        catalog, store, [each for each, _ in pairs], [image for _, image in pairs], in_memory
    )


def _catalog_space(
    catalog: CatalogContents, store: Rows, ids: list[str], images: list[str], in_memory: bool
) -> Space:
    numbers = {split: number for number, split in enumerate(SPLITS)}
    splits = np.array([numbers[catalog.captioned[each].split] for each in images], dtype=np.int8)
    return Space(store, ids, images, ids, splits, store.read_stored(ids) if in_memory else None)


def _concatenated(scores: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(scores) if scores else np.zeros(0)


@dataclass(frozen=True)
class Project:
    """A project, given by its parameter file; artifacts are at the paths that `dvc.yaml` names.

    `chosen` is one of `MODELS`, the model in use, or `IMPORTED` for vectors without one.
    """

    params: Path
    chosen: str = MATCHING

    @cached_property
    def catalog(self) -> CatalogContents:
        """The catalog, read once."""
        images, images_artifact = read_images(self.path("data/images.jsonl"))
        captioned, captions_artifact = read_captions(self.path("data/captions.jsonl"))
        return CatalogContents(
            {image.id: image for image in images},
            {record.id: record for record in captioned},
            image_root(self.path(load_key(self.params, "catalog", "root"))),
            # Without image files, none of them can belong to another data set.
            [captions_artifact, *[images_artifact] * bool(images)],
        )

    @cached_property
    def runtime(self) -> Runtime:
        """The runtime settings."""
        return load_runtime(self.params)

    @property
    def scratch(self) -> Path:
        """The scratch folder."""
        return self.path(str(self.runtime.scratch_folder()))

    @property
    def weights(self) -> Path:
        """The weights file of the network."""
        return self.path(load_key(self.params, "extract", "weights"))

    @property
    def text_network(self) -> Path:
        """The text network that reads captions."""
        return self.path(load_section(self.params, "extract_text", ExtractText).network)

    @property
    def text_statistics(self) -> Path:
        """The mean and deviation of each feature of captions."""
        return self.path("features/text/statistics.h5")

    @property
    def statistics(self) -> Path:
        """The mean and deviation of each feature."""
        return self.path("features/statistics.h5")

    @property
    def embeddings(self) -> Path:
        """The store of image embeddings."""
        return self.path("features/embeddings")

    @property
    def vocabulary(self) -> Path:
        """The vocabulary of the model."""
        return self.path("captions/vocabulary.json")

    @property
    def model(self) -> Path:
        """The model in use."""
        return self.path(MODELS[self.chosen][0])

    @property
    def image_vectors(self) -> Path:
        """The store of image vectors in the joint space."""
        return self.path(f"{MODELS[self.chosen][1]}/images")

    @property
    def caption_vectors(self) -> Path:
        """The store of caption vectors in the joint space."""
        return self.path(f"{MODELS[self.chosen][1]}/captions")

    @property
    def pipeline(self) -> str:
        """The pipeline that makes the model in use; empty for the default one."""
        return FINETUNING if self.chosen == TUNED else ""

    def open_image_vectors(self) -> Rows:
        """Open the store of image vectors."""
        return Rows.open(self.image_vectors, "image_vectors", self.pipeline)

    def open_caption_vectors(self) -> Rows:
        """Open the store of caption vectors."""
        return Rows.open(self.caption_vectors, "caption_vectors", self.pipeline)

    def path(self, name: str) -> Path:
        """Return a path in the project's folder; an absolute path is returned unchanged."""
        return self.params.parent / name


def choose_model(params: Path, model: str, imported: bool = False) -> Project:
    """Return the project of a parameter file with a model of `MODELS` in use; a tuned one must be there.

    With `imported`, vectors of both sides that another program computed may be used instead of a model.
    """
    known = [*MODELS, *[IMPORTED] * imported]
    if model not in known:
        raise InputError(f"model: {not_one_of(model, known)}")
    project = Project(params, model)
    if model == IMPORTED:
        return project
    needed = (project.model, project.image_vectors, project.caption_vectors)
    missing = next((path for path in needed if not path.exists()), None)
    if missing and model == TUNED:
        raise InputError(
            f"{missing}: is missing; run `dvc repro {FINETUNING}`, which makes the tuned model "
            "(docs/papers.md)"
        )
    return project


def open_project(root: str | Path, model: str = MATCHING, imported: bool = False) -> Project:
    """Return the project in a folder, which must have a `params.yaml`, with a model of `MODELS` in use."""
    params = Path(root).expanduser() / PARAMS
    if not params.is_file():
        raise InputError(
            f"{root}: not the folder of a project ({PARAMS} is missing); pass its folder as root"
        )
    project = choose_model(params, model, imported)
    # Shards that were hashed once, and have not changed since, are not hashed again.
    stat_cache.use(project.scratch)
    return project


def find_project(path: Path) -> Project | None:
    """Return the project that a file or folder belongs to, or None.

    A `params.yaml` without a section `runtime` belongs to another program.
    """
    for folder in path.absolute().parents:
        params = folder / PARAMS
        if params.is_file() and "runtime" in load_params(params):
            return open_project(folder)
    return None


@dataclass(frozen=True)
class CatalogImage:
    """An image of the catalog. It has no file if the catalog has only its features."""

    id: str
    file: Path | None
    sha256: str | None


@dataclass(frozen=True)
class ExternalImage:
    """An image file that the catalog does not have; its content is the one that the digest is of."""

    file: Path
    sha256: str
    content: bytes = field(repr=False)
    id: None = None


QueryImage = CatalogImage | ExternalImage


@dataclass(frozen=True)
class EmbeddedImage:
    """The image of a query with what it is compared by: an embedding as stored, a vector in the joint space.

    Only a photo that the catalog does not have records here its size in pixels, and what tuned taggers and
    captioners read of it, by their names in `PARTS`.
    """

    id: str | None
    sha256: str | None
    file: Path | None = None
    embedding: np.ndarray | None = None
    vector: np.ndarray | None = None
    width: int | None = None
    height: int | None = None
    tuned_rows: Mapping[str, np.ndarray] | None = None


def parse_query(argument: str, catalog: CatalogContents, images_only: bool = False) -> QueryImage | str:
    """Return the image or the sentence that an argument of `fne search` stands for.

    An existing file is an image, and so is an id of the catalog. Anything else is a sentence, unless it looks
    like the name of an image: that and an ambiguous argument are refused.
    """
    is_id = argument in catalog.captioned
    if os.path.isfile(argument):  # noqa: PTH113 - a sentence may be too long for the name of a file
        return _read_image(Path(argument), is_id, catalog, images_only)
    if is_id:
        image = catalog.images.get(argument)
        return CatalogImage(argument, catalog.file(argument), image.sha256 if image else None)
    if not images_only and not _looks_like_a_file_name(argument):
        return argument
    near = [get_close_matches(name, catalog.ids, n=1) for name in (argument, Path(argument).name)]
    close = [*near[0], *near[1]]
    example = f"ids look like {catalog.ids[0]!r}" if catalog.ids else "it has no images"
    hint = f"did you mean {close[0]!r}?" if close else example
    advice = "name an image" if images_only else "to search with a sentence, use plain words"
    raise InputError(f"{argument!r} is neither a file nor an image id of the catalog ({hint}); {advice}")


def normalized(text: str) -> str:
    """Return a sentence without differences of case and spaces."""
    return " ".join(text.casefold().split())


def _looks_like_a_file_name(argument: str) -> bool:
    return Path(argument).suffix.lower() in SUFFIXES or ("/" in argument and " " not in argument)


def _read_image(path: Path, is_id: bool, catalog: CatalogContents, images_only: bool) -> QueryImage:
    from fne.store.images import UndecodableError, decode_bytes, read_image_file  # Pillow: slow to import

    try:
        content = read_image_file(path)
        decode_bytes(content)
    except UndecodableError as error:
        allowed = "an image file" if images_only else "an image file or a sentence"
        raise InputError(f"{path}: {error}; use {allowed}") from None
    sha256 = hashlib.sha256(content).hexdigest()
    same = [image.id for image in catalog.images.values() if image.sha256 == sha256]
    if is_id and str(path) not in same:
        raise InputError(
            f"'{path}' is both a file in this folder and the id of another image of the catalog; "
            f"use ./{path} for the file, or another working folder for the image of the catalog"
        )
    if not same:
        return ExternalImage(path, sha256, content)
    return CatalogImage(str(path) if is_id else same[0], path, sha256)
