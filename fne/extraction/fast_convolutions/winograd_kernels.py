"""Compiled loops of Winograd's convolutions: both transforms and the matrix products between them.

The tiles of a chunk are divided into groups of at most TILES. What is multiplied is stored in the order
in which it is read, so that it comes from the cache:

    transformed tiles   (position, group, channels / BLOCK, TILES, BLOCK)
    filters             (position, panel, channels, PANEL)
    products            (position, group, panel, TILES, PANEL)

Every sum runs over the channels in the same order, so a result does not depend on the tiles beside it.

The module needs numba, which is optional, so it is imported only inside functions.
"""

from collections.abc import Sequence

import numba
import numpy as np

from fne.extraction.fast_convolutions.vector_code import (
    BLOCK,
    PANEL,
    TILES,
    copy_block,
    finish_line,
    invert_line,
    multiply_group,
    transform_line,
)

# The digest of `vector_code.py` and `winograd_points.py`. Numba keeps compiled code until this file changes,
# whatever happens to those two.
COMPILED_FROM = "6a17edcd79fb6ac0"
# Channels that are summed before their sum is added to the others, which is more exact than one long sum.
SUMMED = 128
GAP = 16  # values between positions, which would otherwise fall into the same sets of the cache

_ZERO, _LOWEST = np.float32(0), np.float32(-np.inf)

# No fastmath: it would change the order of operations, and with it the rounding.
_compiled = numba.njit(cache=True, nogil=True)


def count_tiles(shape: Sequence[int], size: tuple[int, int]) -> int:
    """Return the number of tiles of a result (images, height, width, …)."""
    images, height, width = shape[:3]
    return images * -(-height // size[0]) * -(-width // size[1])


def strides(tiles: int, channels: int, panels: int) -> tuple[int, int]:
    """Return the number of values per position: of transformed tiles, and of products."""
    padded = -(-tiles // TILES) * TILES
    return padded * channels + GAP, padded * panels * PANEL + GAP


@_compiled
def transform(
    piece: np.ndarray,  # (images, height, width, channels); channels are a multiple of BLOCK
    padding: int,
    size: tuple[int, int],
    place: tuple[int, int, int, int],
    transformed: np.ndarray,
    stride: int,
) -> None:
    """Apply the input transform to some tiles of a batch.

    The tiles of the result have a size (height, width). Their place is the first tile, the tile after the
    last one, the number of tiles of the chunk, and the position of the first tile in the chunk.
    """
    _, height, width, channels = piece.shape
    down, across = size
    first, last, tiles, offset = place
    values = piece.reshape(-1)
    rows = (height + 2 * padding - 2 + down - 1) // down
    columns = (width + 2 * padding - 2 + across - 1) // across
    line = (across + 2) * BLOCK
    pixels, half = _aligned((down + 2) * line), _aligned((down + 2) * line)
    for number in range(first, last):
        image, within = number // (rows * columns), number % (rows * columns)
        top, left = within // columns * down - padding, within % columns * across - padding
        inside = top >= 0 and left >= 0 and top + down + 2 <= height and left + across + 2 <= width
        group, slot = _group(offset + number - first, tiles)
        for begin in range(0, channels, BLOCK):
            at = ((image * height + top) * width + left) * channels + begin
            if not inside:
                sides = (down + 2, across + 2)
                _read_pixels(values, at, (height, width, channels), (top, left), sides, pixels)
            for column in range(across + 2):
                start = column * BLOCK
                if inside:
                    transform_line(down, values, at + column * channels, width * channels, half, start, line)
                else:
                    transform_line(down, pixels, start, line, half, start, line)
            to = (group * channels + begin) * TILES + slot * BLOCK
            for row in range(down + 2):
                start = to + row * (across + 2) * stride
                transform_line(across, half, row * line, BLOCK, transformed, start, stride)


@_compiled
def multiply(
    transformed: np.ndarray,
    stride: int,
    filters: np.ndarray,
    products: np.ndarray,
    product_stride: int,
    tiles: int,
) -> None:
    """Multiply the transformed tiles of a chunk by filters (positions, panels, channels, PANEL)."""
    positions, panels, channels, _ = filters.shape
    values = filters.reshape(-1)
    groups = _count_groups(tiles)
    for position in range(positions):
        for panel in range(panels):
            of = (position * panels + panel) * channels * PANEL
            for group in range(groups):
                count = tiles * (group + 1) // groups - tiles * group // groups
                at = position * stride + group * channels * TILES
                to = position * product_stride + (group * panels + panel) * TILES * PANEL
                for begin in range(0, channels, SUMMED):
                    depth = min(SUMMED, channels - begin)
                    tile, weight = at + begin * TILES, of + begin * PANEL
                    multiply_group(count, transformed, tile, values, weight, depth, begin, products, to)


@_compiled
def inverse_transform(
    products: np.ndarray,
    stride: int,
    bias: np.ndarray,
    relu: bool,
    size: tuple[int, int],
    place: tuple[int, int, int, int],
    result: np.ndarray,
) -> None:
    """Apply the inverse transform to the tiles of a place, add the bias, and optionally apply a ReLU."""
    _, height, width, channels = result.shape
    down, across = size
    first, last, tiles, offset = place
    values = result.reshape(-1)
    rows, columns = (height + down - 1) // down, (width + across - 1) // across
    panels = (channels + PANEL - 1) // PANEL
    lowest = _ZERO if relu else _LOWEST
    line = (across + 2) * BLOCK
    half, pixels = _aligned(down * line), _aligned(down * across * BLOCK)
    for number in range(first, last):
        image, within = number // (rows * columns), number % (rows * columns)
        top, left = within // columns * down, within % columns * across
        inside = top + down <= height and left + across <= width
        group, slot = _group(offset + number - first, tiles)
        for begin in range(0, channels, BLOCK):
            at = ((group * panels + begin // PANEL) * TILES + slot) * PANEL + begin % PANEL
            for column in range(across + 2):
                start = at + column * stride
                invert_line(down, products, start, (across + 2) * stride, half, column * BLOCK, line)
            to = ((image * height + top) * width + left) * channels + begin
            for row in range(down):
                if inside:
                    start = to + row * width * channels
                    finish_line(across, half, row * line, values, start, channels, bias, begin, lowest)
                else:
                    start = row * across * BLOCK
                    finish_line(across, half, row * line, pixels, start, BLOCK, bias, begin, lowest)
            if not inside:
                sides = (min(down, height - top), min(across, width - left))
                _write_pixels(pixels, across, sides, values, to, (width * channels, channels))


@_compiled
def _count_groups(tiles: int) -> int:
    return (tiles + TILES - 1) // TILES


@_compiled
def _group(tile: int, tiles: int) -> tuple[int, int]:
    """Return the group of a tile and its number in it; the sizes of groups differ by one at most."""
    groups = _count_groups(tiles)
    group = ((tile + 1) * groups - 1) // tiles
    return group, tile - tiles * group // groups


@_compiled
def _aligned(size: int) -> np.ndarray:
    """Return memory whose blocks do not cross lines of the cache, which would take twice the time."""
    memory = np.empty(size + BLOCK, dtype=np.float32)
    start = -(memory.ctypes.data // memory.itemsize) % BLOCK
    return memory[start : start + size]


@_compiled
def _read_pixels(
    values: np.ndarray,
    start: int,  # the position of the tile's corner, which may lie outside the image
    shape: tuple[int, int, int],
    corner: tuple[int, int],
    sides: tuple[int, int],
    pixels: np.ndarray,
) -> None:
    """Copy the pixels of a tile that lie inside the image; the others are 0."""
    (height, width, channels), (top, left), (rows, columns) = shape, corner, sides
    pixels[:] = _ZERO
    for row in range(max(0, -top), min(rows, height - top)):
        for column in range(max(0, -left), min(columns, width - left)):
            at = start + (row * width + column) * channels
            copy_block(values, at, pixels, (row * columns + column) * BLOCK)


@_compiled
def _write_pixels(
    pixels: np.ndarray,
    across: int,  # the width of the tile
    sides: tuple[int, int],  # how many of its rows and columns lie inside
    values: np.ndarray,
    start: int,
    steps: tuple[int, int],  # how far rows and columns are apart
) -> None:
    """Copy the pixels of a tile that lie inside the result."""
    for row in range(sides[0]):
        for column in range(sides[1]):
            at = (row * across + column) * BLOCK
            copy_block(pixels, at, values, start + row * steps[0] + column * steps[1])
