"""The arithmetic of crops that overlap: where a crop's activations are those of the whole image.

Away from its edges, a crop sees what the whole image sees. Only near an edge that lies
inside the image does it differ, because the convolution meets padding there instead of
pixels. How near is the `width`: it grows by one with every 3 x 3 convolution and halves,
rounded up, with every max-pool.

The five crops have eight such edges, four horizontal and four vertical. The four corner
crops share theirs in pairs, so their strips run across the whole image; those of the
middle crop end where its corners begin. That gives two frames of four strips and four
corners each.
"""

from dataclasses import dataclass

from fne.activations.crops import CROP, SIDE


@dataclass(frozen=True)
class Frame:
    """The edges of crops along one axis (the other axis has the same), in pixels of the image.

    Attributes:
        start: where the crops begin that begin inside the image.
        end: where the crops end that end inside the image.
        low: where the strips begin that run along these edges.
        high: where those strips end.
    """

    start: int
    end: int
    low: int
    high: int


@dataclass(frozen=True)
class Scale:
    """One depth of the network: pixels of the input per pixel, and the width of the strips."""

    stride: int = 1
    width: int = 0

    @property
    def side(self) -> int:
        """The side of the whole image."""
        return SIDE // self.stride

    @property
    def crop(self) -> int:
        """The side of a crop."""
        return CROP // self.stride

    @property
    def frames(self) -> tuple[Frame, Frame]:
        """The edges of the four corner crops, and those of the middle crop."""
        inset = self.side - self.crop
        half = inset // 2
        corners = Frame(inset, self.crop, 0, self.side)
        middle = Frame(half, half + self.crop, half + self.width, half + self.crop - self.width)
        return corners, middle

    @property
    def poolable(self) -> bool:
        """Whether a 2 x 2 max-pool has the same windows in every crop as in the image."""
        return (SIDE - CROP) // 2 % (2 * self.stride) == 0 and CROP % (2 * self.stride) == 0

    @property
    def fits(self) -> bool:
        """Whether the strips of one more convolution leave something between them."""
        return 2 * self.width + 4 <= 2 * self.crop - self.side

    def convolved(self) -> "Scale":
        """The scale after a 3 x 3 convolution."""
        return Scale(self.stride, self.width + 1)

    def pooled(self) -> "Scale":
        """The scale after a 2 x 2 max-pool."""
        return Scale(self.stride * 2, -(-self.width // 2))

    def spread(self) -> tuple[list[int], list[int]]:
        """How many corner crops, and how many middle crops, take a row of the image as their own.

        What a pixel of the whole image adds to the sum over the five crops is the product
        for its row and its column, summed over the two kinds of crops.
        """
        corners, middle = self.frames
        pixels = range(self.side)
        begins, ends = corners.start + self.width, corners.end - self.width
        return (
            [(pixel >= begins) + (pixel < ends) for pixel in pixels],
            [int(middle.low <= pixel < middle.high) for pixel in pixels],
        )
