"""3 x 3 convolutions on the CPU with Winograd's F(4, 3).

Each tile of 4 x 4 result pixels is computed from 6 x 6 input pixels with 36 products instead
of 144 (Lavin and Gray, 2016). Filters are transformed once, in float64. The tiles of all
batches of a layer are processed together, one chunk at a time: they are transformed, multiplied
by the filters in 36 matrix products, and transformed back, with bias and ReLU.
"""

import math
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fne.extraction.fast.crop_sharing import Convolve, Step, convolve_directly, is_same_3x3

# Tiles per chunk. The time hardly depends on it, but the memory does: the first layers of a network
# have twenty times as many tiles as the last.
CHUNK = 512

# Rows: the points 0, 1, -1, 2, -2 and infinity of Lavin and Gray's F(4, 3).
_FILTER_TRANSFORM = (
    (1 / 4, 0, 0),
    (-1 / 6, -1 / 6, -1 / 6),
    (-1 / 6, 1 / 6, -1 / 6),
    (1 / 24, 1 / 12, 1 / 6),
    (1 / 24, -1 / 12, 1 / 6),
    (0, 0, 1),
)


@dataclass(frozen=True)
class TileRange:
    """Tiles `first` to `last` of a batch, and the position of the first one in its chunk."""

    batch: int
    first: int
    last: int
    offset: int


def chunks(tiles: Sequence[int], size: int) -> Iterator[list[TileRange]]:
    """Split the tiles of all batches, one batch after another, into chunks of at most `size`.

    Example:
        >>> [[(part.batch, part.first, part.last) for part in ranges] for ranges in chunks([3, 2], 4)]
        [[(0, 0, 3), (1, 0, 1)], [(1, 1, 2)]]
    """
    ranges, filled = list[TileRange](), 0
    for batch, count in enumerate(tiles):
        first = 0
        while first < count:
            last = min(count, first + size - filled)
            ranges.append(TileRange(batch, first, last, filled))
            first, filled = last, filled + last - first
            if filled == size:
                yield ranges
                ranges, filled = [], 0
    if ranges:
        yield ranges


class Buffers:
    """Memory that is reused, because allocating it takes longer than filling it."""

    def __init__(self) -> None:
        self._held: dict[str, Tensor] = {}
        self._slot = 0

    def get(self, name: str, size: int) -> Tensor:
        """Return memory that is valid until the next call with the same name."""
        if name not in self._held or len(self._held[name]) < size:
            self._held[name] = torch.empty(size)
        return self._held[name][:size]

    def results(self, shapes: Sequence[Sequence[int]]) -> list[Tensor]:
        """Return memory for the results of a layer, valid until the second next call."""
        self._slot = 1 - self._slot
        sizes = [math.prod(shape) for shape in shapes]
        parts = torch.split(self.get(f"results {self._slot}", sum(sizes)), sizes)
        return [part.view(*shape) for part, shape in zip(parts, shapes, strict=True)]


def transform_filters(weight: Tensor) -> Tensor:
    """Return (36, channels, filters) for the weight (filters, channels, 3, 3) of a convolution."""
    points = torch.tensor(_FILTER_TRANSFORM, dtype=torch.float64)
    transformed = torch.einsum("ia,kcab,jb->ijck", points, weight.detach().double(), points)
    return transformed.flatten(0, 1).float().contiguous()


def convolve_tiles(
    filters: Tensor, bias: Tensor, relu: bool, batches: list[tuple[Tensor, int]], buffers: Buffers
) -> list[Tensor]:
    """Convolve several batches with the same filters.

    Args:
        filters: from `transform_filters`.
        bias: (filters,).
        relu: whether to apply a ReLU to the results.
        batches: each (images, height, width, channels), with its zero padding.
        buffers: memory for tiles and results.

    Returns:
        One result (images, height, width, filters) per batch, in memory of `buffers`.
    """
    from fne.extraction.fast.winograd_loops import POSITIONS, count_tiles, inverse_transform, transform

    _, channels, outputs = filters.shape
    shapes = [
        (len(batch), *(side + 2 * padding - 2 for side in batch.shape[1:3])) for batch, padding in batches
    ]
    results = buffers.results([(*shape, outputs) for shape in shapes])
    for ranges in chunks([count_tiles(*shape) for shape in shapes], CHUNK):
        tiles = sum(part.last - part.first for part in ranges)
        transformed = buffers.get("tiles", POSITIONS * tiles * channels).view(POSITIONS, tiles, channels)
        products = buffers.get("products", POSITIONS * tiles * outputs).view(POSITIONS, tiles, outputs)
        for part in ranges:
            batch, padding = batches[part.batch]
            transform(batch.numpy(), padding, part.first, part.last, transformed.numpy(), part.offset)
        torch.bmm(transformed, filters, out=products)
        for part in ranges:
            result = results[part.batch].numpy()
            inverse_transform(
                products.numpy(), part.offset, bias.numpy(), relu, result, part.first, part.last
            )
    return results


def winograd_convolve(modules: Sequence[nn.Module]) -> Convolve:
    """Return a function that computes the convolutions of these modules, with filters transformed in advance.

    Convolutions whose channels are not a multiple of the block size of the compiled loops, such
    as the first one with its three colors, are computed by torch.

    Raises:
        ImportError: if numba is missing.
    """
    from fne.extraction.fast.winograd_loops import BLOCK

    filters = {
        module: transform_filters(module.weight)
        for module in modules
        if isinstance(module, nn.Conv2d)
        and is_same_3x3(module)
        and module.in_channels % BLOCK == 0
        and module.out_channels % BLOCK == 0
    }
    own = threading.local()  # each thread computes another image

    def convolve(step: Step, batches: list[tuple[Tensor, int]]) -> list[Tensor]:
        module = step.module
        if module not in filters or not isinstance(module, nn.Conv2d):
            return convolve_directly(step, batches)
        own.buffers = getattr(own, "buffers", None) or Buffers()
        bias = torch.zeros(module.out_channels) if module.bias is None else module.bias.detach()
        return convolve_tiles(filters[module], bias, step.relu, batches, own.buffers)

    return convolve


def numba_unsupported_reason() -> str | None:
    """Return why the compiled loops cannot run here, or None after a successful trial run."""
    try:
        from fne.extraction.fast.winograd_loops import BLOCK
    except ImportError as error:
        return f"numba cannot be imported ({error})"
    try:
        filters = torch.zeros(36, BLOCK, BLOCK)
        convolve_tiles(filters, torch.zeros(BLOCK), True, [(torch.zeros(1, 4, 4, BLOCK), 1)], Buffers())
    except Exception as error:  # numba and LLVM raise errors of many types
        return f"numba cannot compile for this machine ({type(error).__name__})"
    return None
