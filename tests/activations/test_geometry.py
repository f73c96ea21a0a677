import pytest

from fne.activations.crops import CROP, SIDE
from fne.activations.geometry import Scale
from tests.narrow import VGG16, VGG19


@pytest.mark.parametrize(
    ("blocks", "widths"),
    [
        (VGG16, [1, 2, 2, 3, 3, 4, 5, 4, 5, 6, 4, 5, 6]),
        (VGG19, [1, 2, 2, 3, 3, 4, 5, 6, 4, 5, 6, 7, 5, 6, 7, 8]),
    ],
)
def test_strips_widen_with_every_convolution_and_halve_with_every_pool(blocks, widths):
    found, scale = [], Scale()
    for count in blocks:
        for _ in range(count):
            scale = scale.convolved()
            found.append(scale.width)
        scale = scale.pooled()
    assert found == widths


def test_pools_are_aligned_between_crops_until_the_middle_crop_begins_at_an_odd_pixel():
    scales = [Scale(stride) for stride in (1, 2, 4, 8, 16)]
    assert [scale.poolable for scale in scales] == [True, True, True, True, False]
    assert [scale.frames[1].start for scale in scales] == [16, 8, 4, 2, 1]


@pytest.mark.parametrize("width", [0, 3, 20])
def test_the_spread_counts_the_crops_that_a_pixel_is_well_inside_of(width):
    scale = Scale(1, width)
    corners, middle = scale.spread()
    starts = [0, SIDE - CROP]
    for pixel in range(SIDE):
        # A crop has a strip only where it ends inside the image.
        inside = [
            (start == 0 or pixel >= start + width) and (start > 0 or pixel < CROP - width) for start in starts
        ]
        assert corners[pixel] == sum(inside)
        half = (SIDE - CROP) // 2
        assert middle[pixel] == (half + width <= pixel < half + CROP - width)


def test_strips_fit_as_long_as_something_is_left_between_them():
    assert Scale(8, 8).fits
    assert not Scale(8, 12).fits
