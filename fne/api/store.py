"""Row stores: activations, embeddings, and vectors of the joint space."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import DTypeLike

from fne.api.project import find_project, open_project
from fne.core.errors import InputError
from fne.core.files import replacing
from fne.core.params import not_one_of
from fne.search.project import Project
from fne.store.catalog import SPLITS, in_split
from fne.store.layout import TERNARY
from fne.store.rows import Rows

CAPTION_VECTORS = "caption_vectors"
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

        Raises:
            InputError: if the store does not have an id or a layer, or if a shard is damaged.
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
        """Return the ids of a split that `read` and `blocks` use, in the order of the catalog.

        Raises:
            InputError: if there is no such split, or if no project is known that says which images are in it.
        """
        if split not in SPLITS:
            raise InputError(f"split: {not_one_of(split, SPLITS)}")
        if self._project is None:
            raise InputError(
                f"{self.path}: no project above this folder says which images are in a split; "
                "pass its folder as root"
            )
        records = in_split(self._project.catalog.captioned.values(), split)
        if self.name == CAPTION_VECTORS:
            return [caption for record in records for caption in record.caption_ids]
        return [record.id for record in records]

    def array(self, file: str | Path | None = None) -> np.ndarray:
        """Return all rows as one read-only memory-mapped array, in the order of `ids`.

        A store of plain numbers in one shard is mapped as it is; `encode` writes such stores of up to
        256 MB. Rows of other stores are written to a new `.npy` file, which is then mapped.

        Args:
            file: where to write the rows if the store cannot be mapped as it is.

        Raises:
            InputError: if the store cannot be mapped as it is and `file` is not given or exists.

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
