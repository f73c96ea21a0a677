"""Nearest neighbors by the cosine and by the Euclidean distance."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional


class Nearest:
    """The nearest of the rows added so far, the first of equal ones."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._scores: Tensor | None = None
        self.places = torch.empty(0)

    def add(self, scores: Tensor, start: int) -> None:
        """Add scores (queries, rows), higher is nearer, of rows that begin at position `start`."""
        places = torch.arange(start, start + scores.shape[1]).expand(len(scores), -1)
        if self._scores is not None:
            scores, places = torch.cat([self._scores, scores], 1), torch.cat([self.places, places], 1)
        order = torch.sort(scores, dim=1, descending=True, stable=True).indices[:, : self._count]
        self._scores, self.places = scores.gather(1, order), places.gather(1, order)


def by_cosine(queries: Tensor, rows: Tensor) -> Tensor:
    """Return the cosines of all pairs (queries, rows)."""
    return unit(queries) @ unit(rows).T


def by_distance(queries: Tensor, rows: Tensor) -> Tensor:
    """Return the squared Euclidean distances of all pairs, negated (queries, rows)."""
    return 2 * queries @ rows.T - rows.square().sum(dim=1) - queries.square().sum(dim=1)[:, None]


DISTANCES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"cosine": by_cosine, "euclidean": by_distance}


def neighbors(rows: Tensor, count: int) -> Tensor:
    """Return the positions of the nearest other rows by cosine (rows, count)."""
    scores = by_cosine(rows, rows)
    scores.fill_diagonal_(-torch.inf)
    return torch.sort(scores, dim=1, descending=True, stable=True).indices[:, :count]


def unit(rows: Tensor) -> Tensor:
    """Return rows of length one; rows of zeros stay."""
    return functional.normalize(rows, dim=1)
