import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image as Picture

from fne.core.errors import InputError
from fne.finetuning.data import Box, CropChoices, CropReader, RandomCrops, cut, draw_box
from fne.matching.mined_captions import AnchorDraw
from tests.support.finetuning import captioned, draw_images

CHOICES = CropChoices(0.8, 4 / 3, True, "bicubic")


@given(st.integers(8, 700), st.integers(8, 700), st.integers(0, 50))
def test_a_crop_lies_in_its_image_and_keeps_the_bounds(width, height, epoch):
    box = draw_box((width, height), f"0 {epoch} a.jpg", CHOICES)
    assert box.left >= 0 <= box.top
    assert box.left + box.width <= width
    assert box.top + box.height <= height
    if min(width, height) > 100 and max(width, height) < 1.2 * min(width, height):
        assert 0.79 < box.width * box.height / (width * height) <= 1.01
        assert 0.73 < box.width / box.height < 1.37


def test_crops_are_a_function_of_seed_epoch_and_image(tmp_path):
    files = draw_images(tmp_path / "images")
    name = next(iter(files))

    def crop(seed, epoch, image=name):
        return RandomCrops(files, tmp_path / "images", seed, CHOICES)[image, epoch]

    assert torch.equal(crop(0, 0), crop(0, 0))
    assert crop(0, 0).shape == (3, 224, 224)
    assert crop(0, 0).dtype == torch.uint8
    for other in (crop(1, 0), crop(0, 1), crop(0, 0, list(files)[1])):
        assert not torch.equal(crop(0, 0), other)


def test_half_of_the_crops_are_mirrored_and_none_where_they_shall_not_be():
    boxes = [draw_box((300, 300), f"0 {epoch} a", CHOICES) for epoch in range(400)]
    assert 150 < sum(box.mirrored for box in boxes) < 250
    never = CropChoices(0.8, 1.3, False, "bicubic")
    assert not any(draw_box((300, 300), f"0 {epoch} a", never).mirrored for epoch in range(50))


def test_a_box_is_cut_scaled_and_mirrored():
    pixels = np.zeros((40, 60, 3), dtype=np.uint8)
    pixels[:, 10:30] = (200, 0, 0)  # the left half of the box
    image = Picture.fromarray(pixels)
    found = cut(image, Box(10, 5, 40, 30, mirrored=False), "bilinear")
    assert (int(found[0, 100, 20]), int(found[0, 100, 200])) == (200, 0)
    assert torch.equal(found.flip(2), cut(image, Box(10, 5, 40, 30, mirrored=True), "bilinear"))


def crops_of_batches(epoch):
    batches = AnchorDraw(captioned(), 0, 4, 3).batches(epoch)
    return [[(each, epoch) for each in batch.image_ids] for batch in batches]


@pytest.mark.parametrize("workers", [0, 1])
def test_crops_are_read_ahead_in_the_order_of_the_batches_from_anywhere(tmp_path, workers):
    crops = RandomCrops(draw_images(tmp_path / "images"), tmp_path / "images", 0, CHOICES)
    reader = CropReader(crops, crops_of_batches, workers, pin=False)
    for epoch, number in [(0, 1), (0, 2), (1, 0), (1, 1), (0, 0)]:
        batch = crops_of_batches(epoch)[number]
        wanted = torch.stack([crops[each] for each in batch])
        assert torch.equal(reader.read(batch), wanted)
    reader.close()


def test_an_image_that_has_changed_is_refused_by_its_digest(tmp_path):
    files = draw_images(tmp_path / "images")
    batch = crops_of_batches(0)[0]
    changed = tmp_path / "images" / batch[0][0]
    Picture.new("RGB", (300, 300)).save(changed)
    crops = RandomCrops(files, tmp_path / "images", 0, CHOICES)
    reader = CropReader(crops, crops_of_batches, 0, pin=False)
    with pytest.raises(
        InputError, match=f"{changed}: has changed since the catalog was made: expected SHA-256"
    ):
        reader.read(batch)
