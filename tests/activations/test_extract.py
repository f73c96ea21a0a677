import hashlib

import numpy as np
import pytest
import torch
from PIL import Image as Picture

from fne.activations.crops import CROPS
from fne.activations.extract import check_finite, extract_shards, read_pixels
from fne.activations.network import Network
from fne.core.errors import InputError
from fne.store.catalog import Image
from fne.store.layout import Layer

CPU = torch.device("cpu")


def image(root, number) -> Image:
    path = root / f"{number}.png"
    Picture.new("RGB", (40, 30), (number * 20, 0, 0)).save(path)
    content = path.read_bytes()
    return Image(path.name, path.name, hashlib.sha256(content).hexdigest(), len(content), 40, 30)


class Brightness(torch.nn.Module):
    """Stands for a network whose one layer tells how red an image is."""

    def forward(self, crops):
        return crops[:, :1]


def network(module=None) -> Network:
    from fne.activations.backbones import Tap

    return Network({"red": module or Brightness()}, (Tap("red", "red", "red"),), [Layer("red", 1)])


def test_every_image_gets_its_own_row(tmp_path):
    images = [image(tmp_path, number) for number in range(7)]
    shards = list(extract_shards(images, tmp_path, network(), CROPS["ten"], 3, CPU))
    found = {each: row[0] for _, ids, rows in shards for each, row in zip(ids, rows, strict=True)}
    for number, record in enumerate(images):
        assert found[record.id] == pytest.approx((number * 20 / 255 - 0.485) / 0.229, rel=1e-5)


def test_an_image_that_changed_since_the_catalog_is_refused(tmp_path):
    record = image(tmp_path, 1)
    (tmp_path / record.path).write_bytes(b"other")
    other = hashlib.sha256(b"other").hexdigest()
    with pytest.raises(InputError) as caught:
        read_pixels(record, tmp_path)
    assert caught.value.message == (
        f"{tmp_path}/1.png: has changed since the catalog was made: it was {record.sha256[:12]}…, "
        f"now it is {other[:12]}…; run `dvc repro catalog`"
    )


def test_an_image_that_is_gone_is_refused(tmp_path):
    record = image(tmp_path, 1)
    (tmp_path / record.path).unlink()
    with pytest.raises(
        InputError, match=r"1.png: cannot be read \(No such file or directory\); run `dvc repro"
    ):
        read_pixels(record, tmp_path)


@pytest.mark.parametrize(("column", "layer"), [(0, "conv"), (1, "conv"), (2, "fc6"), (4, "fc7")])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_an_activation_that_is_not_finite_is_refused_with_image_and_layer(column, layer, value):
    row = np.zeros(5, dtype=np.float32)
    row[column] = value
    with pytest.raises(InputError) as caught:
        check_finite(row, "a.jpg", [Layer("conv", 2), Layer("fc6", 1), Layer("fc7", 2)])
    assert caught.value.message == (
        f"image 'a.jpg': layer {layer} gives {value}; check the weights file and the image"
    )
