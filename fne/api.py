"""The Python interface: what `import fne` offers to scripts and notebooks."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import DTypeLike
from PIL.Image import Image

from fne.core.errors import InputError
from fne.core.files import FETCH, replacing
from fne.core.settings import not_one_of
from fne.matching.model_file import FINETUNING, MODELS, ModelFile, model_of, read_model, read_model_file
from fne.matching.numpy_model import PREFIX
from fne.matching.word_removal import Encoder
from fne.search.engine import encode_sentence
from fne.search.open_project import (
    MATCHING,
    TUNED,
    CatalogImage,
    ExternalImage,
    Project,
    QueryImage,
    find_project,
    open_project,
    parse_query,
)
from fne.search.open_project import CatalogContents as Contents
from fne.search.snapshot import network_reader, sentence_encoder, without_encoder
from fne.store.artifact import merge
from fne.store.catalog import SPLITS, in_split, split_ids
from fne.store.checksums import read_metrics
from fne.store.images import UndecodableError, decode
from fne.store.layout import MANIFEST, TERNARY
from fne.store.rows import OF_CAPTIONS, Rows
from fne.text.vocabulary import read_vocabulary


class Catalog:
    """The images of a data set, by their ids.

    Attributes:
        root: the folder that the paths of the images start from.
        captions: the captions of each image; none for an image of the split `gallery`.
        tags: the tags of each image.
        user_tags: the noisy tags of each image, if the data set has any.
        split: the split of each image: `train`, `val`, `test` or `gallery`.

    Example:
        >>> catalog = fne.load_catalog(project)
        >>> catalog
        <Catalog of 24 images: 8 train, 4 val, 8 test, 4 gallery>
        >>> catalog.captions["red-circle.png"]
        ('A red circle.', 'Something red')
        >>> catalog.ids("val")[:2]
        ['blue-square.png', 'green-square.png']
    """

    def __init__(self, contents: Contents) -> None:
        records = contents.captioned
        self._contents = contents
        self.root = contents.root
        self.captions = {record.id: record.captions for record in records.values()}
        self.tags = {record.id: record.tags for record in records.values()}
        self.user_tags = {record.id: record.user_tags for record in records.values()}
        self.split = {record.id: record.split for record in records.values()}

    def __len__(self) -> int:
        return len(self.split)

    def __iter__(self) -> Iterator[str]:
        return iter(self.split)

    def __contains__(self, image_id: object) -> bool:
        return image_id in self.split

    def __repr__(self) -> str:
        counts = [(len(self.ids(split)), split) for split in SPLITS]
        return f"<Catalog of {len(self)} images: {', '.join(f'{n} {split}' for n, split in counts if n)}>"

    def ids(self, split: str | None = None) -> list[str]:
        """Return the ids of all images, or of those in a split, in the order of the catalog."""
        if split is None:
            return list(self.split)
        if split not in SPLITS:
            raise InputError(f"split: {not_one_of(split, SPLITS)}")
        return split_ids(self._contents.captioned.values(), split)

    def file(self, image_id: str) -> Path:
        """Return the path of an image."""
        if image_id not in self.split:
            raise InputError(f"{image_id!r} is not an image of the catalog; ids() lists them")
        file = self._contents.file(image_id)
        if file is None:
            raise InputError(f"{image_id!r} has no file: the catalog was made with catalog.images=none")
        return file

    def open(self, image_id: str) -> Image:
        """Return an image as the pipeline decodes it: RGB, upright, transparency on white."""
        file = self.file(image_id)
        try:
            return decode(file)
        except UndecodableError as error:
            raise InputError(f"{file}: {error}") from None

    def records(self) -> list[dict[str, Any]]:
        """Return one dictionary per image: id, split, file, width, height, captions, tags and user_tags.

        Example:
            >>> first = fne.load_catalog(project).records()[0]
            >>> first["id"], first["split"], first["width"], first["height"]
            ('blue-circle.png', 'train', 72, 64)
        """
        rows = []
        for image_id in self.split:
            image = self._contents.images.get(image_id)
            file = self._contents.file(image_id)
            rows.append(
                {
                    "id": image_id,
                    "split": self.split[image_id],
                    "file": str(file) if file else None,
                    "width": image.width if image else None,
                    "height": image.height if image else None,
                    "captions": list(self.captions[image_id]),
                    "tags": list(self.tags[image_id]),
                    "user_tags": list(self.user_tags[image_id]),
                }
            )
        return rows

    def dataframe(self) -> Any:
        """Return `records` as a pandas `DataFrame` with the ids as its index; fne does not install pandas."""
        try:
            pandas = import_module("pandas")
        except ModuleNotFoundError:
            raise InputError("pandas is not installed; run `pip install pandas`, or use records()") from None
        return pandas.DataFrame(self.records()).set_index("id")


def load_catalog(root: str | Path = ".") -> Catalog:
    """Load the catalog of the project in the folder `root`.

    Raises:
        InputError: if the folder has no `params.yaml`, or if the catalog is missing or damaged.
    """
    return Catalog(open_project(root).catalog)


FOLDER = "metrics"


def load_metrics(root: str | Path = ".") -> dict[str, Any]:
    """Return the content of all JSON files in the folder `metrics`, by their names.

    Among others there are `retrieval`, by split and protocol: recalls in percent, ranks, and `rsum`, the sum
    of the recalls; `intervals`: the 95 % intervals of these; `baseline`: what a closed-form model reaches.

    Raises:
        InputError: if the folder has no `params.yaml`, or if there are no metrics or damaged ones.

    Example:
        >>> metrics = fne.load_metrics(project)
        >>> sorted(metrics["retrieval"]["test_full"]["image_to_text"])
        ['R@1', 'R@10', 'R@5', 'mean_rank', 'median_rank']
    """
    folder = open_project(root).path(FOLDER)
    files = sorted(folder.glob("*.json"))
    if not files:
        raise InputError(f"{folder}: no metrics; {FETCH}")
    return {file.stem: read_metrics(file, "run `dvc repro`") for file in files}


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

        Words that are not in the vocabulary are encoded as the unknown word. A sentence needs a known one.
        """
        if isinstance(sentences, str):
            raise InputError(f"sentences: expected a list of sentences, got {sentences!r}")
        if without_encoder(self._file.artifact):
            if self._reader is None:
                raise InputError(
                    f"{self.path}: the vectors of captions were imported, and the encoder that computed them "
                    "is unknown; sentences cannot be encoded"
                )
            return self._reader(sentences) if sentences else np.empty((0, self.dim), dtype=np.float32)
        numbers = [encode_sentence(each, self._vocabulary).numbers for each in sentences]
        return self._encoder(numbers) if numbers else np.empty((0, self.dim), dtype=np.float32)

    @cached_property
    def _reader(self) -> Callable[[Sequence[str]], np.ndarray] | None:
        return network_reader(self._project, self._file.artifact, self._file.artifact)

    @cached_property
    def _encoder(self) -> Encoder:
        return sentence_encoder(self._file)

    def encode_images(self, images: Sequence[str | Path]) -> np.ndarray:
        """Return the vectors of images (images, dim), in float32.

        Vectors of images of the catalog are read if they are in `vectors/images`. New images pass through the
        network, which needs its weights and `features/statistics.h5`.

        Args:
            images: ids of the catalog, or image files.
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
            vectors = self._project.open_image_vectors()
            if model_of(vectors.artifact) == model_of(self._file.artifact):
                return vectors.read(ids)
        if self._file.artifact.name == MODELS[0]:
            raise InputError(
                f"{self._project.image_vectors}: has no vectors of the tuned network in {self.path}; run "
                f"`dvc repro {FINETUNING}`"
            )
        embeddings = Rows.open(self._project.embeddings, "embeddings")
        merge(self._file.artifact, embeddings.artifact)
        from fne.search.embed_query import embed_rows  # torch: slow to import

        return embed_rows(read_model(self.path)[0], embeddings.read(ids))

    def _new_vectors(self, images: Sequence[ExternalImage]) -> np.ndarray:
        from fne.search.embed_query import open_network  # torch: slow to import

        return open_network(self._project, None, read_model(self.path)).vectors(images)


def load_model(path: str | Path = ".", *, root: str | Path | None = None, model: str = MATCHING) -> Model:
    """Load a trained model.

    Args:
        path: the folder of a project, whose model is then loaded, or the file of a model.
        root: the folder of the project, if `path` is a file outside it.
        model: which model of the project: `matching`, or `tuned` for that of the fine-tuned network. A file
            says by itself which it is.

    Raises:
        InputError: if the model or the vocabulary is missing or damaged, or if they do not belong together.
    """
    given = Path(path).expanduser()
    if root is not None:
        project = open_project(root, model)
        file = project.path(str(given)) if given != Path() else project.model
    elif given.is_dir():
        project = open_project(given, model)
        file = project.model
    else:
        found = find_project(given)
        if found is None:
            raise InputError(f"{path}: no project above this file; pass the project's folder as root")
        project, file = found, given
    found_model = read_model_file(file, PREFIX)
    if found_model.artifact.name == MODELS[0]:
        project = replace(project, chosen=TUNED)
    return Model(found_model, project)


BLOCK = 1024  # rows


class Store:
    """A row store, open for reading: one row of numbers per image or caption.

    Rows are read when they are asked for, through memory maps. A shard is hashed before its first use.

    Attributes:
        path: the folder of the store.
        name: what it holds: `activations`, `embeddings`, `image_vectors` or `caption_vectors`.
        settings: the settings that it was made with.
        layers: the number of columns of each layer, by its name, in the order of the columns.
        dtype: the type of the rows that are read; ternary rows are unpacked to int8.

    Example:
        >>> store = fne.open_store("features/embeddings", root=project)
        >>> store
        <Store of embeddings: 24 rows of 9344 int8 values in 7 layers>
        >>> store["red-circle.png"].shape
        (9344,)
        >>> store.read(split="train", layer="fc7").shape
        (8, 4096)
    """

    def __init__(self, rows: Rows, project: Project | None) -> None:
        self._rows = rows
        self._project = project
        self.path = rows.artifact.path
        self.name = rows.artifact.name
        self.settings: dict[str, Any] = rows.artifact.settings
        self.layers = {layer.name: layer.features for layer in rows.layers}
        self.dtype: np.dtype[Any] = np.dtype(np.int8 if rows.dtype == TERNARY else rows.dtype)

    @property
    def ids(self) -> list[str]:
        """The ids of all rows, in the order of the store: of images or, for captions, `IMAGE#NUMBER`."""
        return self._rows.ids

    @property
    def shape(self) -> tuple[int, int]:
        """The number of rows and the number of columns."""
        return len(self._rows.ids), self._rows.features

    def __len__(self) -> int:
        return len(self._rows.ids)

    def __contains__(self, row_id: object) -> bool:
        return row_id in self._known

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(self._rows.ids)

    @overload
    def __getitem__(self, ids: str) -> np.ndarray: ...
    @overload
    def __getitem__(self, ids: Sequence[str]) -> np.ndarray: ...
    def __getitem__(self, ids: str | Sequence[str]) -> np.ndarray:
        row: np.ndarray = self.read([ids])[0] if isinstance(ids, str) else self.read(ids)
        return row

    def __repr__(self) -> str:
        rows, columns = self.shape
        size = f"{rows} rows of {columns} {self.dtype} values in {len(self.layers)} layers"
        return f"<Store of {self.name}: {size}>"

    def read(
        self,
        ids: Sequence[str] | None = None,
        *,
        split: str | None = None,
        layer: str | Sequence[str] | None = None,
        dtype: DTypeLike | None = None,
    ) -> np.ndarray:
        """Return rows as one array (ids, columns).

        Args:
            ids: which rows, in this order; all rows of the store if neither `ids` nor `split` is given.
            split: instead of `ids`, the rows of a split, in the order of `split_ids`.
            layer: the columns of this layer, or of these layers side by side; all columns if None.
            dtype: the type of the result; by default `Store.dtype`.
        """
        chosen = self._chosen(ids, split)
        return self._columns(self._rows.read(chosen, dtype), layer)

    def blocks(
        self,
        size: int = BLOCK,
        *,
        ids: Sequence[str] | None = None,
        split: str | None = None,
        layer: str | Sequence[str] | None = None,
        dtype: DTypeLike | None = None,
    ) -> Iterator[tuple[list[str], np.ndarray]]:
        """Yield ids and their rows, `size` at a time; the other arguments are those of `read`.

        Example:
            >>> store = fne.open_store("features/activations", root=project)
            >>> [rows.shape for ids, rows in store.blocks(size=10, layer="fc7")]
            [(10, 4096), (10, 4096), (4, 4096)]
        """
        for chosen, rows in self._rows.blocks(self._chosen(ids, split), size, dtype):
            yield chosen, self._columns(rows, layer)

    def split_ids(self, split: str) -> list[str]:
        """Return the ids of a split that `read` and `blocks` use, in the order of the catalog."""
        if split not in SPLITS:
            raise InputError(f"split: {not_one_of(split, SPLITS)}")
        if self._project is None:
            raise InputError(
                f"{self.path}: no project above this folder says which images are in a split; "
                "pass its folder as root"
            )
        records = in_split(self._project.catalog.captioned.values(), split)
        if self.name in OF_CAPTIONS:
            return [caption for record in records for caption in record.caption_ids]
        return [record.id for record in records]

    def array(self, file: str | Path | None = None) -> np.ndarray:
        """Return all rows as one read-only memory-mapped array, in the order of `ids`.

        A store of plain numbers in one shard is mapped as it is; `encode` writes such stores of up to
        256 MB. Rows of other stores are written to a new `.npy` file, which is then mapped.

        Args:
            file: where to write the rows if the store cannot be mapped as it is; must not exist.

        Example:
            >>> fne.open_store("vectors/images", root=project).array().shape
            (24, 4)
        """
        if not self._rows.ids:
            return self.read()
        if len(self._rows.shards) == 1 and self._rows.dtype != TERNARY:
            mapped: np.ndarray = self._rows.mapped_block(0)
            return mapped
        if file is None:
            kind = "ternary rows" if self._rows.dtype == TERNARY else f"{len(self._rows.shards)} shards"
            raise InputError(
                f"{self.path}: has {kind}, which cannot be mapped as one array; "
                "use array('rows.npy') to write them to a file, or read()"
            )
        target = Path(file)
        if target.exists():
            raise InputError(f"{target}: exists; map it with numpy.load(…, mmap_mode='r'), or remove it")
        with replacing(target) as temporary:
            written = open_memmap(temporary, mode="w+", dtype=self.dtype, shape=self.shape)
            start = 0
            for ids, rows in self._rows.blocks():
                written[start : start + len(ids)] = rows
                start += len(ids)
            written.flush()
        rows_of_file: np.ndarray = np.load(target, mmap_mode="r")
        return rows_of_file

    def _chosen(self, ids: Sequence[str] | None, split: str | None) -> Sequence[str]:
        if ids is not None and split is not None:
            raise InputError("give either ids or split")
        if isinstance(ids, str):
            raise InputError(f"ids: expected a list of ids, got {ids!r}")
        if split is not None:
            return self.split_ids(split)
        return self._rows.ids if ids is None else ids

    def _columns(self, rows: np.ndarray, layer: str | Sequence[str] | None) -> np.ndarray:
        if layer is None:
            return rows
        if isinstance(layer, str):
            return rows[:, self._rows.columns(layer)]
        return np.concatenate([rows[:, self._rows.columns(each)] for each in layer], axis=1)


def open_store(path: str | Path, *, root: str | Path | None = None) -> Store:
    """Open a row store; only its manifest is read.

    Args:
        path: the folder of the store, such as `features/embeddings`; relative to `root` if that is given.
        root: the folder of the project, which says which images are in a split; by default the nearest
            folder above the store that has a `params.yaml`.

    Raises:
        InputError: if there is no store, or if it is damaged or of a newer format.

    Example:
        >>> store = fne.open_store("vectors/captions", root=project)
        >>> len(store), store.ids[:2]
        (40, ['blue-circle.png#0', 'blue-circle.png#1'])
    """
    project = open_project(root) if root is not None else find_project(Path(path))
    folder = Path(path).expanduser() if root is None or project is None else project.path(str(path))
    return Store(Rows.open(folder), project)
