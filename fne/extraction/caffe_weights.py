"""Weights of Caffe's VGG networks (`.caffemodel`), converted without Caffe.

The file is a protocol buffer, of which only the fields with weights are read. Caffe has two layouts: `layers`
with the older V1LayerParameter, and `layer` with LayerParameter. Nothing in the file is executed, every
length is checked, and the values of a blob are read where they are, without a copy.
"""

import math
import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from fne.core.errors import InputError
from fne.core.files import file_digest, replacing
from fne.core.outputs import check_output
from fne.core.stat_cache import file_state
from fne.extraction.networks import BACKBONES, build_backbone
from fne.extraction.settings import CAFFE, InputFormat
from fne.extraction.weights import DESCRIPTION, Description, State

# Field numbers of NetParameter, and of a layer's name and blobs in either layout.
NEW_LAYER, OLD_LAYER = 100, 2
NAMES = {NEW_LAYER: 1, OLD_LAYER: 4}
BLOBS = {NEW_LAYER: 7, OLD_LAYER: 6}
# Field numbers of BlobProto, and of its BlobShape.
NUM, WIDTH, DATA, SHAPE, DOUBLE_DATA, DIM = 1, 4, 5, 7, 8, 1
# Wire types.
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
MAX_LAYERS = 10_000
MAX_BLOBS = 16
MAX_AXES = 8
MAX_NAME = 1000
MAX_CHUNKS = 1_000_000


class NotCaffeError(ValueError):
    """The bytes are not a model of Caffe; the message is the reason."""


@dataclass(frozen=True)
class Field:
    """One field of a message: its number, its wire type, and its value or the bytes of its value."""

    number: int
    wire: int
    value: int
    content: memoryview


def convert_caffemodel(source: Path, target: Path, backbone: str, feeding: InputFormat = CAFFE) -> list[str]:
    """Convert weights of `vgg16` or `vgg19` to safetensors with torchvision's names; return the layer names.

    The file records how images must be fed. Equal sources give equal bytes.
    """
    check_output(target, "--to", lambda head: DESCRIPTION.encode() in head, source)
    before = file_state(source).identity if source.is_file() else ""
    try:
        layers = read_caffemodel(source)
    except NotCaffeError as error:
        raise InputError(f"{source}: not a readable model of Caffe: {error}; use another file") from None
    state, names = torchvision_state(source, layers, backbone)
    description = Description(input=feeding, source_sha256=file_digest(source))
    if file_state(source).identity != before:
        raise InputError(f"{source}: changed while it was read; nothing was imported; run this again")
    with replacing(target) as temporary:
        # A single entry: safetensors writes several ones in an order of its own.
        save_file(state, temporary, {DESCRIPTION: description.model_dump_json()})
    return names


def torchvision_state(
    source: Path, layers: dict[str, list[Tensor]], backbone: str
) -> tuple[State, list[str]]:
    """Return Caffe's weights under torchvision's names, and the names of the layers that have some."""
    with torch.device("meta"):
        expected = build_backbone(backbone).state_dict()
    state: State = {}
    found = []
    for tap in BACKBONES[backbone].taps:
        if tap.layer not in layers:
            break
        blobs = layers[tap.layer]
        for key, blob in zip(("weight", "bias"), blobs, strict=False):
            name = f"{tap.weighted}.{key}"
            shape = expected[name].shape
            # Old layouts have four axes always: (1, 1, 4096, 25088) for fc6, (1, 1, 1, 64) for a bias.
            if blob.numel() != math.prod(shape) or _squeezed(blob.shape) != _squeezed(shape):
                raise InputError(
                    f"{source}: layer {tap.layer} has a {key} of shape {tuple(blob.shape)}, expected "
                    f"{tuple(shape)} for {backbone}; choose the right network with --backbone"
                )
            state[name] = blob.reshape(shape).contiguous()
        if len(blobs) != 2:
            raise InputError(f"{source}: layer {tap.layer} has {len(blobs)} blobs, expected weight and bias")
        found.append(tap.layer)
    missing = [tap.layer for tap in BACKBONES[backbone].taps[len(found) :]]
    later = [layer for layer in missing if layer in layers]
    if not found or later:
        raise InputError(
            f"{source}: has no layer {missing[0]}, which {backbone} needs; it has {_listed(layers)}; choose "
            "the right network with --backbone"
        )
    return state, found


def read_caffemodel(path: Path) -> dict[str, list[Tensor]]:
    """Return the blobs of every layer that has some, by the layer's name.

    Raises:
        NotCaffeError: if the file is damaged or something else.
    """
    try:
        if path.stat().st_size == 0:
            raise NotCaffeError("the file is empty")
        with path.open("rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); use another file") from None
    return _layers(memoryview(content))


def fields(message: memoryview) -> Iterator[Field]:
    """Yield the fields of a message."""
    position, end = 0, len(message)
    nothing = message[:0]
    while position < end:
        key, position = _varint(message, position)
        number, wire = key >> 3, key & 7
        if number == 0:
            raise NotCaffeError("a field has number 0")
        if wire == VARINT:
            value, position = _varint(message, position)
            yield Field(number, wire, value, nothing)
            continue
        if wire == BYTES:
            length, position = _varint(message, position)
        elif wire in (FIXED32, FIXED64):
            length = 4 if wire == FIXED32 else 8
        else:
            raise NotCaffeError(f"a field has the unknown type {wire}")
        if length > end - position:
            raise NotCaffeError(f"a field of {length} bytes reaches beyond its end")
        yield Field(number, wire, 0, message[position : position + length])
        position += length


def _layers(model: memoryview) -> dict[str, list[Tensor]]:
    layers: dict[str, list[Tensor]] = {}
    count = 0
    for field in fields(model):
        if field.number not in NAMES or field.wire != BYTES:
            continue
        count += 1
        if count > MAX_LAYERS:
            raise NotCaffeError(f"more than {MAX_LAYERS} layers")
        name, blobs = _layer(field)
        if not blobs:
            continue
        if name in layers:
            raise NotCaffeError(f"two layers are called {name!r}")
        layers[name] = blobs
    if not layers:
        raise NotCaffeError("no layer has weights")
    return layers


def _layer(layer: Field) -> tuple[str, list[Tensor]]:
    name, blobs = "", list[Tensor]()
    for field in fields(layer.content):
        if field.wire != BYTES:
            continue
        if field.number == NAMES[layer.number]:
            if len(field.content) > MAX_NAME:
                raise NotCaffeError(f"a name has {len(field.content)} bytes")
            name = bytes(field.content).decode("utf-8", errors="replace")
        elif field.number == BLOBS[layer.number]:
            if len(blobs) == MAX_BLOBS:
                raise NotCaffeError(f"layer {name!r} has more than {MAX_BLOBS} blobs")
            blobs.append(_blob(field.content))
    return name, blobs


def _blob(blob: memoryview) -> Tensor:
    """Return the values of a blob, in a copy, with its shape."""
    old_shape, shape = [1, 1, 1, 1], list[int]()
    chunks = list[np.ndarray]()
    for field in fields(blob):
        if NUM <= field.number <= WIDTH and field.wire == VARINT:
            old_shape[field.number - NUM] = field.value
        elif field.number == SHAPE and field.wire == BYTES:
            shape = _dims(field.content)
        elif field.number in (DATA, DOUBLE_DATA):
            chunks.append(_values(field, np.dtype("<f4") if field.number == DATA else np.dtype("<f8")))
            if len(chunks) > MAX_CHUNKS:
                raise NotCaffeError("a blob is stored in too many pieces")
    values = chunks[0] if len(chunks) == 1 else np.concatenate([np.zeros(0, dtype=np.float32), *chunks])
    wanted = shape or old_shape
    if any(side < 1 for side in wanted) or math.prod(wanted) != len(values):
        raise NotCaffeError(f"a blob of shape {tuple(wanted)} has {len(values)} values")
    if not np.isfinite(values).all():
        raise NotCaffeError("a weight is not finite")
    return torch.from_numpy(values.astype(np.float32)).reshape(wanted)


def _dims(shape: memoryview) -> list[int]:
    dims = list[int]()
    for field in fields(shape):
        if field.number != DIM:
            continue
        if field.wire == VARINT:
            dims.append(field.value)
        position = 0
        while position < len(field.content):  # packed
            value, position = _varint(field.content, position)
            dims.append(value)
        if len(dims) > MAX_AXES:
            raise NotCaffeError(f"a blob has more than {MAX_AXES} axes")
    return dims


def _values(field: Field, dtype: "np.dtype[np.floating]") -> np.ndarray:
    """Return the values of a field of numbers, packed or a single one."""
    if field.wire == VARINT or len(field.content) % dtype.itemsize:
        raise NotCaffeError(f"{len(field.content)} bytes are not a whole number of values")
    return np.frombuffer(field.content, dtype=dtype)


def _varint(message: memoryview, position: int) -> tuple[int, int]:
    """Return a number of 7 bits per byte, the lowest ones first, and the position after it."""
    value = 0
    for shift in range(0, 64, 7):
        if position >= len(message):
            raise NotCaffeError("the file ends within a number")
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise NotCaffeError("a number has more than 64 bits")


def _squeezed(shape: tuple[int, ...] | torch.Size) -> list[int]:
    """Return a shape without axes of one."""
    return [side for side in shape if side != 1]


def _listed(layers: dict[str, list[Tensor]]) -> str:
    names = list(layers)
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
