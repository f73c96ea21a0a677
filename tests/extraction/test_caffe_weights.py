import hashlib
import struct
from contextlib import suppress

import numpy as np
import pytest
import torch

from fne.extraction import caffe_weights
from fne.extraction.caffe_weights import NotCaffeError, convert_caffemodel, read_caffemodel
from fne.extraction.layers import Backbone, Tap
from fne.extraction.settings import CAFFE
from fne.extraction.weights import load_weights
from tests.support.refusals import refused

OLD, NEW = "old", "new"


def varint(value):
    """Encode a number with seven bits per byte."""
    parts = []
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def message(number, content):
    return varint(number << 3 | 2) + varint(len(content)) + content


def number(field, value):
    return varint(field << 3) + varint(value)


def blob(values, layout, double=False):
    """Encode an array as a BlobProto of either layout; gradients and unknown fields are there, too."""
    if layout == OLD:
        sides = (1,) * (4 - values.ndim) + values.shape
        shape = b"".join(number(field, side) for field, side in enumerate(sides, start=1))
    else:
        shape = message(7, message(1, b"".join(map(varint, values.shape))))
    data = message(8 if double else 5, values.astype("<f8" if double else "<f4").tobytes())
    return shape + data + message(6, b"\0\0\0\0") + number(99, 5)


def layer(name, blobs, layout, double=False):
    encoded = name.encode()
    if layout == OLD:
        parts = message(4, encoded) + b"".join(message(6, blob(each, layout, double)) for each in blobs)
        return message(2, parts + number(5, 4))
    parts = message(1, encoded) + message(2, b"Convolution")
    return message(100, parts + b"".join(message(7, blob(each, layout, double)) for each in blobs))


WEIGHTS = {
    "conv1_1": (np.arange(4 * 3 * 9).reshape(4, 3, 3, 3) / 7, np.arange(4) / 3),
    "fc6": (np.arange(5 * 16).reshape(5, 16) - 3.5, np.ones(5)),
}


def model(layout, weights=WEIGHTS, double=False):
    parts = [layer(name, blobs, layout, double) for name, blobs in weights.items()]
    return message(1, b"VGG") + b"".join(parts) + layer("relu", [], layout)


class Tiny(torch.nn.Module):
    """A network of one convolution and one fully connected layer."""

    def __init__(self):
        super().__init__()
        self.features = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3))
        self.classifier = torch.nn.Sequential(torch.nn.Linear(16, 5))


@pytest.fixture
def tiny(monkeypatch):
    taps = (Tap("conv1_1", "features.0", "features.0"), Tap("fc6", "classifier.0", "classifier.0"))
    monkeypatch.setitem(caffe_weights.BACKBONES, "vgg16", Backbone(taps, lambda _: {}))
    monkeypatch.setattr(caffe_weights, "build_backbone", lambda _: Tiny())


@pytest.mark.parametrize("layout", [OLD, NEW])
@pytest.mark.parametrize("double", [False, True])
def test_both_layouts_give_the_same_blobs(tmp_path, layout, double):
    (tmp_path / "m.caffemodel").write_bytes(model(layout, double=double))
    found = read_caffemodel(tmp_path / "m.caffemodel")
    assert list(found) == ["conv1_1", "fc6"]
    for name, blobs in WEIGHTS.items():
        for value, expected in zip(found[name], blobs, strict=True):
            assert value.dtype == torch.float32
            assert np.array_equal(value.flatten().numpy(), expected.astype(np.float32).ravel())


@pytest.mark.parametrize("layout", [OLD, NEW])
def test_a_converted_file_has_torchvisions_names_and_says_its_input_and_source(tmp_path, tiny, layout):
    source, target = tmp_path / "m.caffemodel", tmp_path / "w.safetensors"
    source.write_bytes(model(layout))
    assert convert_caffemodel(source, target, "vgg16") == ["conv1_1", "fc6"]
    loaded = load_weights(target, "vgg16")
    assert {name: value.shape for name, value in loaded.state.items()} == {
        name: value.shape for name, value in Tiny().state_dict().items()
    }
    assert loaded.state["classifier.0.weight"][2, 3] == WEIGHTS["fc6"][0][2, 3]
    assert loaded.input == CAFFE
    assert loaded.artifact.settings["source"] == hashlib.sha256(source.read_bytes()).hexdigest()
    first = target.read_bytes()
    convert_caffemodel(source, target, "vgg16")
    assert target.read_bytes() == first


def test_values_that_are_not_packed_are_read(tmp_path):
    values = b"".join(varint(5 << 3 | 5) + struct.pack("<f", each) for each in (1.5, -2.0))
    part = number(1, 1) + number(2, 1) + number(3, 1) + number(4, 2) + values
    (tmp_path / "m.caffemodel").write_bytes(message(2, message(4, b"a") + message(6, part)))
    assert read_caffemodel(tmp_path / "m.caffemodel")["a"][0].flatten().tolist() == [1.5, -2.0]


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"conv9": WEIGHTS["conv1_1"]}, "has no layer conv1_1, which vgg16 needs; it has conv9"),
        ({"conv1_1": (np.ones((4, 3, 5, 5)), np.ones(4))}, "shape (4, 3, 5, 5), expected (4, 3, 3, 3)"),
        ({"conv1_1": (np.ones((4, 3, 3, 3)),)}, "layer conv1_1 has 1 blobs, expected weight and bias"),
    ],
)
def test_a_model_of_another_network_is_refused(tmp_path, tiny, weights, message):
    (tmp_path / "m.caffemodel").write_bytes(model(NEW, weights))
    with refused(message):
        convert_caffemodel(tmp_path / "m.caffemodel", tmp_path / "w.safetensors", "vgg16")
    assert not (tmp_path / "w.safetensors").exists()


HUGE = 2**62
HOSTILE = {
    "empty": b"",
    "html": b"<html>not found</html>",
    "zeros": bytes(100),
    "length beyond the end": varint(100 << 3 | 2) + varint(HUGE),
    "endless number": b"\xff" * 20,
    "group": varint(100 << 3 | 3),
    "huge shape": message(2, message(4, b"a") + message(6, number(1, HUGE) + number(2, HUGE))),
    "shape without values": message(100, message(1, b"a") + message(7, message(7, message(1, varint(9))))),
    "many axes": message(100, message(7, message(7, message(1, b"\1" * 1000)))),
    "no whole values": message(2, message(6, message(5, b"abc"))),
    "not finite": message(2, message(4, b"a") + message(6, message(5, struct.pack("<f", float("nan"))))),
    "two of one name": model(NEW) + model(NEW),
    "many blobs": message(2, b"".join(message(6, message(5, bytes(4))) for _ in range(20))),
    "long name": message(2, message(4, b"a" * 5000)),
    "many layers": message(2, b"") * 10_001,
    "no weights": message(1, b"VGG"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_damaged_or_hostile_file_is_refused(tmp_path, name):
    (tmp_path / "m.caffemodel").write_bytes(HOSTILE[name])
    with pytest.raises(NotCaffeError):
        read_caffemodel(tmp_path / "m.caffemodel")


def test_every_cut_file_is_refused_or_lacks_layers(tmp_path, tiny):
    whole = model(NEW)
    for end in range(1, len(whole), 7):
        (tmp_path / "m.caffemodel").write_bytes(whole[:end])
        with suppress(NotCaffeError):
            assert set(read_caffemodel(tmp_path / "m.caffemodel")) <= set(WEIGHTS)


def test_the_fault_is_one_line_for_the_user(tmp_path):
    (tmp_path / "m.caffemodel").write_bytes(b"")
    with refused("m.caffemodel: not a readable model of Caffe: the file is empty; use another file"):
        convert_caffemodel(tmp_path / "m.caffemodel", tmp_path / "w.safetensors", "vgg16")


def test_a_weights_file_of_the_user_is_not_replaced(tmp_path, tiny):
    source, target = tmp_path / "m.caffemodel", tmp_path / "w.safetensors"
    source.write_bytes(model(NEW))
    target.write_bytes(b"mine")
    with refused(f"{target}: exists", "choose another name with --to, or remove it"):
        convert_caffemodel(source, target, "vgg16")
    assert target.read_bytes() == b"mine"
    target.unlink()
    for _ in range(2):  # its own earlier output
        convert_caffemodel(source, target, "vgg16")


def test_a_source_that_changes_while_it_is_read_is_refused(tmp_path, tiny, monkeypatch):
    source = tmp_path / "m.caffemodel"
    source.write_bytes(model(NEW))
    monkeypatch.setattr("fne.extraction.caffe_weights.file_digest", lambda path: path.touch() or "0" * 64)
    with refused("changed while it was read; nothing was imported; run this again"):
        convert_caffemodel(source, tmp_path / "w.safetensors", "vgg16")
    assert not (tmp_path / "w.safetensors").exists()
