"""How the tiles of several batches are computed together, a chunk at a time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Run:
    """Tiles `first` to `last` of a batch, and where they are among the tiles of their chunk."""

    batch: int
    first: int
    last: int
    offset: int


def chunks(tiles: Sequence[int], size: int) -> Iterator[list[Run]]:
    """Split the tiles of all batches, one batch after another, into chunks of at most `size`.

    Example:
        >>> [[(run.batch, run.first, run.last) for run in runs] for runs in chunks([3, 2], 4)]
        [[(0, 0, 3), (1, 0, 1)], [(1, 1, 2)]]
    """
    runs, filled = list[Run](), 0
    for batch, count in enumerate(tiles):
        first = 0
        while first < count:
            last = min(count, first + size - filled)
            runs.append(Run(batch, first, last, filled))
            first, filled = last, filled + last - first
            if filled == size:
                yield runs
                runs, filled = [], 0
    if runs:
        yield runs
