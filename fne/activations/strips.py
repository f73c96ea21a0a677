"""The activations of five overlapping crops, kept as one whole image and strips along the crops' edges.

All arrays are channels-last and contiguous: (…, height, width, channels).
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

from torch import Tensor

from fne.activations.geometry import Frame, Scale


@dataclass(frozen=True)
class Strips:
    """What differs from the whole image along the edges of a frame.

    The first axis tells edges where crops begin (0) from those where crops end (1).

    Attributes:
        columns: (edge, images, length, width, channels), along the vertical edges.
        rows: (edge, images, width, length, channels), along the horizontal edges.
        corners: (edge of rows, edge of columns, images, width, width, channels).
    """

    columns: Tensor
    rows: Tensor
    corners: Tensor


@dataclass(frozen=True)
class Shared:
    """Five crops of each image at one depth of the network.

    Attributes:
        scale: where in the network they are.
        image: (images, side, side, channels), as if there were no crops.
        frames: the strips of the corner crops, and those of the middle crop.
    """

    scale: Scale
    image: Tensor
    frames: tuple[Strips, Strips]


def share(images: Tensor) -> Shared:
    """Start from images (images, side, side, channels), of which crops differ nowhere yet."""
    scale = Scale()
    count, *sides, channels = images.shape
    if sides != [scale.side, scale.side]:
        raise ValueError(f"expected images of side {scale.side}, got {sides}")
    frames = [
        Strips(
            images.new_empty(2, count, frame.high - frame.low, 0, channels),
            images.new_empty(2, count, 0, frame.high - frame.low, channels),
            images.new_empty(2, 2, count, 0, 0, channels),
        )
        for frame in scale.frames
    ]
    return Shared(scale, images, (frames[0], frames[1]))


def neighborhoods(shared: Shared) -> list[Tensor]:
    """Return what a 3 x 3 convolution needs to make the next, wider strips.

    Padding is part of it: zeros beyond the edges of the crops and of the image.
    """
    after = shared.scale.convolved()
    grown = []
    for strips, before, frame in zip(shared.frames, shared.scale.frames, after.frames, strict=True):
        widened = _widen(shared, strips, before, after.width + 1, (frame.low - 1, frame.high + 1), margin=1)
        grown += _flat(widened)
    return grown


def convolved(shared: Shared, pieces: list[Tensor]) -> Shared:
    """Put together what the convolution made of the image and of `neighborhoods`."""
    return _assemble(shared.scale.convolved(), pieces)


def pooled(shared: Shared, pool: Callable[[Tensor], Tensor]) -> Shared:
    """Take the maximum of every 2 x 2 pixels of each crop."""
    after = shared.scale.pooled()
    pieces = [shared.image]
    for strips, before, frame in zip(shared.frames, shared.scale.frames, after.frames, strict=True):
        pieces += _flat(
            _widen(shared, strips, before, 2 * after.width, (2 * frame.low, 2 * frame.high), margin=0)
        )
    return _assemble(after, [pool(piece) for piece in pieces])


def mapped(shared: Shared, function: Callable[[Tensor], Tensor]) -> Shared:
    """Apply a function of single values, such as ReLU, everywhere."""
    pieces = [shared.image, *(piece for strips in shared.frames for piece in _flat(strips))]
    return _assemble(shared.scale, [function(piece) for piece in pieces])


def _widen(
    shared: Shared, strips: Strips, frame: Frame, depth: int, along: tuple[int, int], margin: int
) -> Strips:
    """Return strips of `depth` pixels, taking from the image what they lack.

    Args:
        shared: the image.
        strips: as they are.
        frame: where they are.
        depth: at least their width.
        along: the pixels from and to which strips run; zeros where those are not in the frame.
        margin: zeros beyond the edge.
    """
    image, width = shared.image, shared.scale.width
    count, _, _, channels = image.shape
    length, across = along[1] - along[0], depth + margin
    grown = Strips(
        image.new_zeros(2, count, length, across, channels),
        image.new_zeros(2, count, across, length, channels),
        image.new_zeros(2, 2, count, across, across, channels),
    )
    # Per edge: where in the new strip the old one goes, where the pixels go, and which pixels those are.
    sides = [
        (
            slice(margin, margin + width),
            slice(margin + width, None),
            (frame.start + width, frame.start + depth),
        ),
        (slice(depth - width, depth), slice(0, depth - width), (frame.end - depth, frame.end - width)),
    ]
    first, last = max(along[0], frame.low), min(along[1], frame.high)
    to, within = slice(first - along[0], last - along[0]), slice(first - frame.low, last - frame.low)
    for edge, (kept, new, (begin, end)) in enumerate(sides):
        grown.columns[edge][:, to, kept] = strips.columns[edge][:, within]
        grown.columns[edge][:, to, new] = image[:, first:last, begin:end]
        grown.rows[edge][:, kept, to] = strips.rows[edge][:, :, within]
        grown.rows[edge][:, new, to] = image[:, begin:end, first:last]
    for row, column in product((0, 1), repeat=2):
        corner = grown.corners[row, column]
        (kept_y, new_y, (top, bottom)), (kept_x, new_x, (left, right)) = sides[row], sides[column]
        corner[:, kept_y, kept_x] = strips.corners[row, column]
        corner[:, kept_y, new_x] = strips.rows[row][:, :, left - frame.low : right - frame.low]
        corner[:, new_y, kept_x] = strips.columns[column][:, top - frame.low : bottom - frame.low]
        corner[:, new_y, new_x] = image[:, top:bottom, left:right]
    return grown


def _flat(strips: Strips) -> list[Tensor]:
    return [strips.columns.flatten(0, 1), strips.rows.flatten(0, 1), strips.corners.flatten(0, 2)]


def _assemble(scale: Scale, pieces: list[Tensor]) -> Shared:
    image, *rest = pieces
    count = len(image)
    frames = [
        Strips(
            columns.view(2, count, *columns.shape[1:]),
            rows.view(2, count, *rows.shape[1:]),
            corners.view(2, 2, count, *corners.shape[1:]),
        )
        for columns, rows, corners in (rest[:3], rest[3:])
    ]
    return Shared(scale, image, (frames[0], frames[1]))
