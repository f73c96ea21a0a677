"""Compiled loops for Winograd's input transform and inverse transform.

The result is computed in tiles of 4 x 4 pixels, each from 6 x 6 input pixels; tiles may extend
beyond the result. Channels are the last axis and the innermost loop, one block at a time, so
that both passes over a tile, along its columns and along its rows, stay in the L1 cache. Blocks
are flat arrays with parts of constant length, so that the compiler can prove that they do not
overlap, and vectorizes the loops.

The module needs numba, which is optional, so it is imported only inside functions.
"""

import numba
import numpy as np

POSITIONS = 36
BLOCK = 16
ROW = 6 * BLOCK  # a row of 6 positions in a flat block

_ZERO, _TWO, _FOUR, _FIVE, _EIGHT = (np.float32(value) for value in (0, 2, 4, 5, 8))
_LOWEST = np.float32(-np.inf)

# No fastmath: it would change the order of operations, and with it the rounding.
_compiled = numba.njit(cache=True, nogil=True)


def count_tiles(images: int, height: int, width: int) -> int:
    """Return the number of tiles of a result (images, height, width)."""
    return images * -(-height // 4) * -(-width // 4)


@_compiled
def transform(piece: np.ndarray, padding: int, first: int, last: int, tiles: np.ndarray, offset: int) -> None:
    """Apply the input transform to some tiles of a batch.

    Args:
        piece: (images, height, width, channels); channels are a multiple of BLOCK.
        padding: the zero padding of each image.
        first: the first tile.
        last: the tile after the last one.
        tiles: (36, tiles, channels), the output.
        offset: the position of the first tile in `tiles`.
    """
    _, height, width, channels = piece.shape
    down, across = (height + 2 * padding + 1) // 4, (width + 2 * padding + 1) // 4
    pixels = np.empty(POSITIONS * BLOCK, dtype=np.float32)
    half = np.empty(POSITIONS * BLOCK, dtype=np.float32)
    for number in range(first, last):
        image, within = number // (down * across), number % (down * across)
        top, left = within // across * 4 - padding, within % across * 4 - padding
        for begin in range(0, channels, BLOCK):
            _read_pixels(piece, image, top, left, begin, pixels)
            for column in range(6):
                _transform_line(pixels, half, column * BLOCK, ROW)
            for row in range(6):
                _transform_line(half, pixels, row * ROW, BLOCK)
            for position in range(POSITIONS):
                for c in range(BLOCK):
                    tiles[position, offset + number - first, begin + c] = pixels[position * BLOCK + c]


@_compiled
def inverse_transform(
    products: np.ndarray, offset: int, bias: np.ndarray, relu: bool, result: np.ndarray, first: int, last: int
) -> None:
    """Apply the inverse transform to some tiles of a batch, add the bias, and optionally apply a ReLU.

    Args:
        products: (36, tiles, channels); channels are a multiple of BLOCK.
        offset: the position of the first tile in `products`.
        bias: (channels,).
        relu: whether to apply a ReLU.
        result: (images, height, width, channels), the output.
        first: the first tile.
        last: the tile after the last one.
    """
    _, height, width, channels = result.shape
    down, across = (height + 3) // 4, (width + 3) // 4
    lowest = _ZERO if relu else _LOWEST
    half = np.empty(POSITIONS * BLOCK, dtype=np.float32)
    pixels = np.empty(POSITIONS * BLOCK, dtype=np.float32)
    for number in range(first, last):
        image, within = number // (down * across), number % (down * across)
        top, left = within // across * 4, within % across * 4
        for begin in range(0, channels, BLOCK):
            for position in range(POSITIONS):
                for c in range(BLOCK):
                    pixels[position * BLOCK + c] = products[position, offset + number - first, begin + c]
            for column in range(6):
                _inverse_transform_line(pixels, half, column * BLOCK, ROW)
            for row in range(4):
                _inverse_transform_line(half, pixels, row * ROW, BLOCK)
            for row in range(min(4, height - top)):
                for column in range(min(4, width - left)):
                    for c in range(BLOCK):
                        value = pixels[row * ROW + column * BLOCK + c] + bias[begin + c]
                        # NaN compares false, so it is kept and detected later.
                        result[image, top + row, left + column, begin + c] = (
                            lowest if value < lowest else value
                        )


@_compiled
def _read_pixels(piece: np.ndarray, image: int, top: int, left: int, begin: int, pixels: np.ndarray) -> None:
    _, height, width, _ = piece.shape
    for position in range(POSITIONS):
        y, x = top + position // 6, left + position % 6
        if 0 <= y < height and 0 <= x < width:
            for c in range(BLOCK):
                pixels[position * BLOCK + c] = piece[image, y, x, begin + c]
        else:
            for c in range(BLOCK):
                pixels[position * BLOCK + c] = _ZERO


@_compiled
def _transform_line(source: np.ndarray, target: np.ndarray, start: int, step: int) -> None:
    """Multiply six values, `step` apart, by Lavin and Gray's input matrix."""
    for c in range(start, start + BLOCK):
        d0, d1, d2 = source[c], source[c + step], source[c + 2 * step]
        d3, d4, d5 = source[c + 3 * step], source[c + 4 * step], source[c + 5 * step]
        even, odd = d4 - _FOUR * d2, d3 - _FOUR * d1
        near, far = d4 - d2, _TWO * (d3 - d1)
        target[c] = _FOUR * d0 - _FIVE * d2 + d4
        target[c + step] = even + odd
        target[c + 2 * step] = even - odd
        target[c + 3 * step] = near + far
        target[c + 4 * step] = near - far
        target[c + 5 * step] = _FOUR * d1 - _FIVE * d3 + d5


@_compiled
def _inverse_transform_line(source: np.ndarray, target: np.ndarray, start: int, step: int) -> None:
    """Multiply six values, `step` apart, by Lavin and Gray's output matrix, which gives four values."""
    for c in range(start, start + BLOCK):
        m0, m1, m2 = source[c], source[c + step], source[c + 2 * step]
        m3, m4, m5 = source[c + 3 * step], source[c + 4 * step], source[c + 5 * step]
        target[c] = m0 + (m1 + m2) + (m3 + m4)
        target[c + step] = (m1 - m2) + _TWO * (m3 - m4)
        target[c + 2 * step] = (m1 + m2) + _FOUR * (m3 + m4)
        target[c + 3 * step] = (m1 - m2) + _EIGHT * (m3 - m4) + m5
