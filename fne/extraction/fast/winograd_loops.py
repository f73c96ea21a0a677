"""Compiled loops for Winograd's input transform and inverse transform.

The result is computed in tiles of 4 x 4 pixels, each from 6 x 6 input pixels; tiles may extend
beyond the result. Channels are the last axis and the innermost loop, one block at a time, so
that what is between the two passes over a tile, along its columns and along its rows, stays in the
L1 cache. The first pass reads its input and the second one writes its result in place. Loops run
over slices of constant length: with indexes into whole arrays, which might be negative, the compiler
would not vectorize them.

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
        tile = offset + number - first
        inside = top >= 0 and left >= 0 and top + 6 <= height and left + 6 <= width
        for begin in range(0, channels, BLOCK):
            end = begin + BLOCK
            if not inside:
                _read_pixels(piece, image, top, left, begin, pixels)
            for column in range(6):
                start = column * BLOCK
                if inside:
                    x = left + column
                    d0, d1 = piece[image, top, x, begin:end], piece[image, top + 1, x, begin:end]
                    d2, d3 = piece[image, top + 2, x, begin:end], piece[image, top + 3, x, begin:end]
                    d4, d5 = piece[image, top + 4, x, begin:end], piece[image, top + 5, x, begin:end]
                    for c in range(BLOCK):
                        (
                            half[start + c],
                            half[start + c + ROW],
                            half[start + c + 2 * ROW],
                            half[start + c + 3 * ROW],
                            half[start + c + 4 * ROW],
                            half[start + c + 5 * ROW],
                        ) = _transform_values(d0[c], d1[c], d2[c], d3[c], d4[c], d5[c])
                else:
                    for c in range(start, start + BLOCK):
                        (
                            half[c],
                            half[c + ROW],
                            half[c + 2 * ROW],
                            half[c + 3 * ROW],
                            half[c + 4 * ROW],
                            half[c + 5 * ROW],
                        ) = _transform_values(
                            pixels[c],
                            pixels[c + ROW],
                            pixels[c + 2 * ROW],
                            pixels[c + 3 * ROW],
                            pixels[c + 4 * ROW],
                            pixels[c + 5 * ROW],
                        )
            for row in range(6):
                t0, t1 = tiles[6 * row, tile, begin:end], tiles[6 * row + 1, tile, begin:end]
                t2, t3 = tiles[6 * row + 2, tile, begin:end], tiles[6 * row + 3, tile, begin:end]
                t4, t5 = tiles[6 * row + 4, tile, begin:end], tiles[6 * row + 5, tile, begin:end]
                line = half[row * ROW : (row + 1) * ROW]
                for c in range(BLOCK):
                    t0[c], t1[c], t2[c], t3[c], t4[c], t5[c] = _transform_values(
                        line[c],
                        line[c + BLOCK],
                        line[c + 2 * BLOCK],
                        line[c + 3 * BLOCK],
                        line[c + 4 * BLOCK],
                        line[c + 5 * BLOCK],
                    )


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
    half = np.empty(4 * ROW, dtype=np.float32)
    pixels = np.empty(16 * BLOCK, dtype=np.float32)
    for number in range(first, last):
        image, within = number // (down * across), number % (down * across)
        top, left = within // across * 4, within % across * 4
        tile = offset + number - first
        for begin in range(0, channels, BLOCK):
            end = begin + BLOCK
            for column in range(6):
                m0, m1 = products[column, tile, begin:end], products[6 + column, tile, begin:end]
                m2, m3 = products[12 + column, tile, begin:end], products[18 + column, tile, begin:end]
                m4, m5 = products[24 + column, tile, begin:end], products[30 + column, tile, begin:end]
                start = column * BLOCK
                for c in range(BLOCK):
                    (
                        half[start + c],
                        half[start + c + ROW],
                        half[start + c + 2 * ROW],
                        half[start + c + 3 * ROW],
                    ) = _inverse_transform_values(m0[c], m1[c], m2[c], m3[c], m4[c], m5[c])
            biases = bias[begin:end]
            for row in range(4):
                line, start = row * ROW, row * 4 * BLOCK
                for c in range(BLOCK):
                    v0, v1, v2, v3 = _inverse_transform_values(
                        half[line + c],
                        half[line + c + BLOCK],
                        half[line + c + 2 * BLOCK],
                        half[line + c + 3 * BLOCK],
                        half[line + c + 4 * BLOCK],
                        half[line + c + 5 * BLOCK],
                    )
                    pixels[start + c] = _at_least(lowest, v0 + biases[c])
                    pixels[start + c + BLOCK] = _at_least(lowest, v1 + biases[c])
                    pixels[start + c + 2 * BLOCK] = _at_least(lowest, v2 + biases[c])
                    pixels[start + c + 3 * BLOCK] = _at_least(lowest, v3 + biases[c])
            for row in range(min(4, height - top)):
                for column in range(min(4, width - left)):
                    target = result[image, top + row, left + column, begin:end]
                    start = (4 * row + column) * BLOCK
                    for c in range(BLOCK):
                        target[c] = pixels[start + c]


@_compiled
def _read_pixels(piece: np.ndarray, image: int, top: int, left: int, begin: int, pixels: np.ndarray) -> None:
    _, height, width, _ = piece.shape
    for position in range(POSITIONS):
        y, x, start = top + position // 6, left + position % 6, position * BLOCK
        if 0 <= y < height and 0 <= x < width:
            line = piece[image, y, x, begin : begin + BLOCK]
            for c in range(BLOCK):
                pixels[start + c] = line[c]
        else:
            for c in range(BLOCK):
                pixels[start + c] = _ZERO


@_compiled
def _transform_values(
    d0: np.float32, d1: np.float32, d2: np.float32, d3: np.float32, d4: np.float32, d5: np.float32
) -> tuple[np.float32, ...]:
    """Multiply six values by Lavin and Gray's input matrix."""
    even, odd = d4 - _FOUR * d2, d3 - _FOUR * d1
    near, far = d4 - d2, _TWO * (d3 - d1)
    return (
        _FOUR * d0 - _FIVE * d2 + d4,
        even + odd,
        even - odd,
        near + far,
        near - far,
        _FOUR * d1 - _FIVE * d3 + d5,
    )


@_compiled
def _inverse_transform_values(
    m0: np.float32, m1: np.float32, m2: np.float32, m3: np.float32, m4: np.float32, m5: np.float32
) -> tuple[np.float32, ...]:
    """Multiply six values by Lavin and Gray's output matrix, which gives four values."""
    return (
        m0 + (m1 + m2) + (m3 + m4),
        (m1 - m2) + _TWO * (m3 - m4),
        (m1 + m2) + _FOUR * (m3 + m4),
        (m1 - m2) + _EIGHT * (m3 - m4) + m5,
    )


@_compiled
def _at_least(lowest: np.float32, value: np.float32) -> np.float32:
    # NaN compares false, so it is kept and detected later.
    return lowest if value < lowest else value
