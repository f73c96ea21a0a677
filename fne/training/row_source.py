"""Where a task's image rows come from: a store, the views in a store, or a network that is trained too.

A task reads rows by ids of images, so training a network together with any task is just another source.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from fne.store.layout import count_views, mean_of_views
from fne.store.rows import Rows
from fne.training.task import ParameterGroup

IN_MEMORY = 2**28  # values that are kept in memory at most


class RowSource(Protocol):
    """The rows of images, by id."""

    @property
    def network(self) -> nn.Module | None:
        """What computes the rows, on its own device, and is trained too; None if rows are constants."""

    def parameter_groups(self) -> Sequence[ParameterGroup]:
        """Return the trained weights of the network."""

    def check_ids(self, ids: Sequence[str]) -> None:
        """Refuse images without a row, naming the first of them."""

    def digest(self, ids: Sequence[str]) -> str:
        """Return the digest of what decides the rows of some images."""

    def read(self, ids: Sequence[str], views: Sequence[int] | None = None) -> Tensor:
        """Return the rows (images, features) of a training step, in float32, with gradients of the network.

        Args:
            views: the view of each image, where there are several; without it, what is encoded.
        """

    def blocks(self, ids: Sequence[str], size: int) -> Iterator[Tensor]:
        """Yield the rows that are encoded, of `size` images at a time, without gradients."""


class StoreRows:
    """The rows of a store; with several views of an image, one is read per step and their mean is encoded.

    Rows of `kept` images are read once and stay in memory, if there is room: an epoch in random order would
    read every row again.
    """

    network = None

    def __init__(self, store: Rows, kept: Sequence[str] = ()) -> None:
        self.store = store
        fits = len(kept) * store.features <= IN_MEMORY
        self._places = {each: place for place, each in enumerate(kept)} if fits else {}
        self.views = count_views(store.layers)
        self.features = store.features // self.views
        self.check_ids, self.digest = store.check_ids, store.digest

    def parameter_groups(self) -> Sequence[ParameterGroup]:
        """Return nothing: rows of a store are not trained."""
        return []

    def read(self, ids: Sequence[str], views: Sequence[int] | None = None) -> Tensor:
        """Return rows (images, features) in float32: of one view each, or the mean of all views."""
        kept = bool(self._places) and all(each in self._places for each in ids)
        stored = self._kept[[self._places[each] for each in ids]] if kept else self.store.read(ids)
        rows = stored.astype(np.float32, copy=False)
        if views is None:
            return torch.from_numpy(mean_of_views(rows, self.views))
        return torch.from_numpy(rows.reshape(len(rows), self.views, -1)[np.arange(len(rows)), list(views)])

    @cached_property
    def _kept(self) -> np.ndarray:
        """Rows in the type of the store."""
        return self.store.read(list(self._places))

    def blocks(self, ids: Sequence[str], size: int) -> Iterator[Tensor]:
        """Yield the rows of `size` images at a time, the mean of their views."""
        for start in range(0, len(ids), size):
            yield self.read(ids[start : start + size])
