"""The activations of five overlapping crops, stored as one full image and strips along the crop edges.

A crop has the activations of the full image, except near an edge that lies inside the image, because the
convolution sees padding there instead of pixels. The strip in which it differs has a `width`, which grows by
one with every 3 x 3 convolution and halves, rounded up, with every max-pool.

The five crops have eight such edges, four horizontal and four vertical. The four corner crops share theirs in
pairs, so their strips run across the full image. The strips of the center crop end where its corners begin.
This gives two frames of four strips and four corners each.

All arrays are channels-last and contiguous: (…, height, width, channels).
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

from torch import Tensor

from fne.extraction.layers import CROP
from fne.extraction.settings import SIDE


@dataclass(frozen=True)
class Frame:
    """The edges of crops along one axis, in pixels; both axes have the same."""

    start: int  # where crops start that start inside the image
    end: int  # where crops end that end inside the image
    low: int  # where the strips along these edges start
    high: int  # where these strips end


@dataclass(frozen=True)
class Scale:
    """The geometry at one depth of the network: input pixels per pixel, and the width of the strips."""

    stride: int = 1
    width: int = 0

    @property
    def side(self) -> int:
        """The side of the full image."""
        return SIDE // self.stride

    @property
    def crop(self) -> int:
        """The side of a crop."""
        return CROP // self.stride

    @property
    def frames(self) -> tuple[Frame, Frame]:
        """The edges of the four corner crops, and of the center crop."""
        inset = self.side - self.crop
        half = inset // 2
        corners = Frame(inset, self.crop, 0, self.side)
        center = Frame(half, half + self.crop, half + self.width, half + self.crop - self.width)
        return corners, center

    @property
    def poolable(self) -> bool:
        """Whether a 2 x 2 max-pool has the same windows in every crop as in the image."""
        return (SIDE - CROP) // 2 % (2 * self.stride) == 0 and CROP % (2 * self.stride) == 0

    @property
    def fits(self) -> bool:
        """Whether the strips still do not meet after one more convolution."""
        return 2 * self.width + 4 <= 2 * self.crop - self.side

    def convolved(self) -> "Scale":
        """The scale after a 3 x 3 convolution."""
        return Scale(self.stride, self.width + 1)

    def pooled(self) -> "Scale":
        """The scale after a 2 x 2 max-pool."""
        return Scale(self.stride * 2, -(-self.width // 2))

    def coverage(self) -> tuple[list[int], list[int]]:
        """Return, per row of the image, how many corner crops and how many center crops use it unchanged.

        The weight of a pixel in the sum over the five crops is the product of the numbers for
        its row and its column, summed over the two kinds of crops.
        """
        corners, center = self.frames
        pixels = range(self.side)
        begins, ends = corners.start + self.width, corners.end - self.width
        return (
            [(pixel >= begins) + (pixel < ends) for pixel in pixels],
            [int(center.low <= pixel < center.high) for pixel in pixels],
        )


@dataclass(frozen=True)
class Strips:
    """The activations that differ from the full image, along the edges of a frame.

    The first axis is 0 for edges where crops start and 1 for edges where crops end.
    """

    columns: Tensor  # (edge, images, length, width, channels), along the vertical edges
    rows: Tensor  # (edge, images, width, length, channels), along the horizontal edges
    corners: Tensor  # (edge of rows, edge of columns, images, width, width, channels)


@dataclass(frozen=True)
class SharedCrops:
    """Five crops of each image at one depth of the network."""

    scale: Scale  # the depth in the network
    image: Tensor  # (images, side, side, channels), the activations of the full image
    frames: tuple[Strips, Strips]  # the strips of the corner crops, and of the center crop


def shared_crops(images: Tensor) -> SharedCrops:
    """Return the crops of input images (images, side, side, channels), with strips of width 0."""
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
    return SharedCrops(scale, images, (frames[0], frames[1]))


def neighborhoods(shared: SharedCrops) -> list[Tensor]:
    """Return the inputs, padded with zeros, of a 3 x 3 convolution that computes the next, wider strips."""
    after = shared.scale.convolved()
    grown = []
    for strips, before, frame in zip(shared.frames, shared.scale.frames, after.frames, strict=True):
        widened = _widen(shared, strips, before, after.width + 1, (frame.low - 1, frame.high + 1), margin=1)
        grown += _flat(widened)
    return grown


def convolved(shared: SharedCrops, pieces: list[Tensor]) -> SharedCrops:
    """Return the crops from the convolved image and the convolved `neighborhoods`."""
    return _assemble(shared.scale.convolved(), pieces)


def pooled(shared: SharedCrops, pool: Callable[[Tensor], Tensor]) -> SharedCrops:
    """Return the crops after a 2 x 2 max-pool."""
    after = shared.scale.pooled()
    pieces = [shared.image]
    for strips, before, frame in zip(shared.frames, shared.scale.frames, after.frames, strict=True):
        pieces += _flat(
            _widen(shared, strips, before, 2 * after.width, (2 * frame.low, 2 * frame.high), margin=0)
        )
    return _assemble(after, [pool(piece) for piece in pieces])


def mapped(shared: SharedCrops, function: Callable[[Tensor], Tensor]) -> SharedCrops:
    """Return the crops after an elementwise function, such as ReLU."""
    pieces = [shared.image, *(piece for strips in shared.frames for piece in _flat(strips))]
    return _assemble(shared.scale, [function(piece) for piece in pieces])


def _widen(
    shared: SharedCrops, strips: Strips, frame: Frame, depth: int, along: tuple[int, int], margin: int
) -> Strips:
    """Return strips of `depth` pixels, with the additional pixels taken from the image.

    They run `along` an axis, with zeros outside the frame and a margin of zeros beyond the edge.
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


def _assemble(scale: Scale, pieces: list[Tensor]) -> SharedCrops:
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
    return SharedCrops(scale, image, (frames[0], frames[1]))
