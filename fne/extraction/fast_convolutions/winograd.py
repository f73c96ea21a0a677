"""3 x 3 convolutions on the CPU with Winograd's minimal filtering.

Each tile of 4 x 4 result pixels is computed from 6 x 6 input pixels with 36 products instead of 144 (Lavin
and Gray, 2016). Filters are transformed once, in float64. The tiles of all batches of a layer are processed
together, one chunk at a time: they are transformed, multiplied by the filters in 36 matrix products, and
transformed back, with bias and ReLU.

Tiles of 5 or 6 pixels take fewer products, but they are less exact. They are used where tiles of 4 pixels
would extend far beyond the result: for strips that are 5 or 6 pixels wide, and for small images.
"""

import math
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fne.extraction.fast_convolutions.crop_sharing import Convolve, Step, convolve_directly, is_same_3x3
from fne.extraction.fast_convolutions.winograd_points import SIZES, filter_matrix

# The height and the width of a tile of the result.
TileSize = tuple[int, int]

# Tiles per chunk, so that a chunk stays in the cache. With many channels the filters are larger than the
# cache, and a chunk is as large as reading them pays.
CHUNK, WIDE_CHUNK = 28, 224
WIDE = 256  # channels
# Sides up to this length may have tiles larger than 4 pixels.
SHORT = 16


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


class Filters:
    """The filters of a convolution, transformed for each size of tiles when it is first needed."""

    def __init__(self, weight: Tensor) -> None:
        self._weight = weight.detach()
        self._transformed: dict[TileSize, Tensor] = {}
        self._lock = threading.Lock()

    def get(self, size: TileSize) -> Tensor:
        """Return (positions, panels, channels, PANEL); the last panel is filled with zeros."""
        with self._lock:
            if size not in self._transformed:
                self._transformed[size] = transform_filters(self._weight, size)
            return self._transformed[size]


def transform_filters(weight: Tensor, size: TileSize) -> Tensor:
    """Return (positions, panels, channels, PANEL) for a weight (filters, channels, 3, 3)."""
    from fne.extraction.fast_convolutions.vector_code import PANEL  # numba: slow to import

    rows, columns = (torch.tensor(filter_matrix(each), dtype=torch.float64) for each in size)
    panels = torch.split(weight, PANEL)
    transformed = torch.zeros(len(rows) * len(columns), len(panels), weight.shape[1], PANEL)
    # One panel at a time stays in the cache, which takes a quarter of the time for 512 channels.
    for panel, part in enumerate(panels):
        values = torch.einsum("ia,kcab,jb->ijck", rows, part.double(), columns)
        transformed[:, panel, :, : len(part)] = values.flatten(0, 1)
    return transformed


def tile_size(height: int, width: int) -> TileSize:
    """Return the size of the tiles of a result."""
    if max(height, width) <= max(SIZES):
        # The corners of strips: one pair of tiles, with the filters of the vertical strips.
        return 4, _fewest_products(width)
    return _fewest_products(height), _fewest_products(width)


def convolve_tiles(
    filters: Filters, bias: Tensor, relu: bool, batches: list[tuple[Tensor, int]], buffers: Buffers
) -> list[Tensor]:
    """Convolve batches (images, height, width, channels), each with its zero padding, with the same filters.

    There is one result (images, height, width, filters) per batch, in memory of `buffers`.
    """
    shapes = [
        (len(batch), *(side + 2 * padding - 2 for side in batch.shape[1:3])) for batch, padding in batches
    ]
    results = buffers.results([(*shape, len(bias)) for shape in shapes])
    by_size: dict[TileSize, list[tuple[Tensor, int, Tensor]]] = {}
    for (batch, padding), result in zip(batches, results, strict=True):
        by_size.setdefault(tile_size(*result.shape[1:3]), []).append((batch, padding, result))
    for size, same in by_size.items():
        _convolve(filters.get(size), size, bias, relu, same, buffers)
    return results


def _convolve(
    filters: Tensor,
    size: TileSize,
    bias: Tensor,
    relu: bool,
    batches: list[tuple[Tensor, int, Tensor]],
    buffers: Buffers,
) -> None:
    """Compute the results of batches with tiles of one size."""
    from fne.extraction.fast_convolutions.winograd_kernels import (  # numba: slow to import
        count_tiles,
        inverse_transform,
        multiply,
        strides,
        transform,
    )

    positions, panels, channels, _ = filters.shape
    counts = [count_tiles(result.shape, size) for _, _, result in batches]
    for ranges in chunks(counts, CHUNK if channels < WIDE else WIDE_CHUNK):
        tiles = sum(part.last - part.first for part in ranges)
        stride, product_stride = strides(tiles, channels, panels)
        transformed = buffers.get("tiles", positions * stride).numpy()
        products = buffers.get("products", positions * product_stride).numpy()
        for part in ranges:
            batch, padding, _ = batches[part.batch]
            place = (part.first, part.last, tiles, part.offset)
            transform(batch.numpy(), padding, size, place, transformed, stride)
        multiply(transformed, stride, filters.numpy(), products, product_stride, tiles)
        for part in ranges:
            result = batches[part.batch][2].numpy()
            place = (part.first, part.last, tiles, part.offset)
            inverse_transform(products, product_stride, bias.numpy(), relu, size, place, result)


def winograd_convolve(modules: Sequence[nn.Module]) -> Convolve:
    """Return a function that computes the convolutions of these modules, with filters transformed once.

    Convolutions whose channels are not a multiple of the block size of the compiled loops, such
    as the first one with its three colors, are computed by torch.
    """
    from fne.extraction.fast_convolutions.vector_code import BLOCK  # numba: slow to import

    filters = {
        module: Filters(module.weight)
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
        from fne.extraction.fast_convolutions.vector_code import BLOCK  # numba: slow to import
    except ImportError as error:
        return f"numba cannot be imported ({error})"
    try:
        filters = Filters(torch.zeros(BLOCK, BLOCK, 3, 3))
        convolve_tiles(filters, torch.zeros(BLOCK), True, [(torch.zeros(1, 4, 4, BLOCK), 1)], Buffers())
    except Exception as error:  # numba and LLVM raise errors of many types
        return f"numba cannot compile for this machine ({type(error).__name__})"
    return None


def _fewest_products(side: int) -> int:
    return min(SIZES, key=lambda size: (size + 2) * -(-side // size)) if side <= SHORT else min(SIZES)
