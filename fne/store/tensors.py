"""Sealed tensors: a safetensors file with a description and a digest in its header.

The safetensors format does not detect a changed bit. The header has only one entry of fne, because the order
of several would differ from run to run.

Importing torch takes longer than a complete search, which reads a model as NumPy arrays. So torch is imported
only where tensors are returned. Checkpoints can be as large as half of the memory, so tensors are written and
read one by one, without a second copy of all of them.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load

from fne.core.errors import InputError
from fne.core.files import check_regular, missing_path, read_bytes, readable_os_errors, replacing
from fne.store.artifact import Artifact, Contents, Done, Kind, Lines, repair_hint, summary
from fne.store.layout import not_finite

if TYPE_CHECKING:
    from torch import Tensor

ENTRY = "fne"
# What a file of weights is, and its weights by their names.
WeightsFile = tuple[Artifact, dict[str, np.ndarray]]
MAX_HEADER = 100_000_000  # bytes, as safetensors has it
# What building a model raises whose header was not written by fne.
HEADER_FAULTS = (KeyError, TypeError, ValueError, RuntimeError, AttributeError, IndexError, OverflowError)
# What reading a damaged file can raise.
FAULTS = (SafetensorError, KeyError, ValueError, TypeError, AttributeError, RecursionError)
# The types of the format by their NumPy names. Tensors of the first ones come first.
TYPES = {
    "uint64": "U64",
    "int64": "I64",
    "float64": "F64",
    "complex64": "C64",
    "float32": "F32",
    "uint32": "U32",
    "int32": "I32",
    "float16": "F16",
    "uint16": "U16",
    "int16": "I16",
    "int8": "I8",
    "uint8": "U8",
    "bool": "BOOL",
}

# How the names of the weights of a network begin that was tuned together with the model of the file.
NETWORK = "network."


def write_sealed(path: Path, description: dict[str, Any], tensors: "dict[str, Tensor]") -> str:
    """Write tensors and their description, a JSON-compatible mapping; return the SHA-256 of the file."""
    arrays = {name: value.detach().cpu().contiguous().numpy() for name, value in tensors.items()}
    seal = _Seal(description)
    for name, value in sorted(arrays.items()):
        seal.add(name, value)
    sealed = description | {"sha256": seal.hexdigest()}
    digest = hashlib.sha256()
    # Written by Python: safetensors would raise an error of its own on a full disk, and ignore the umask.
    with replacing(path) as temporary, temporary.open("wb") as file:
        header = _header(arrays, json.dumps(sealed, ensure_ascii=False))
        parts: list[bytes | memoryview] = [header, *(value.data for value in _in_order(arrays).values())]
        for part in parts:
            digest.update(part)
            file.write(part)
    return digest.hexdigest()


def read_sealed(path: Path) -> "tuple[dict[str, Any], dict[str, Tensor]]":
    """Return the description and the tensors, after checking their digest."""
    import torch  # torch: slow to import

    if not path.exists():
        raise missing_path(path)
    check_regular(path)
    tensors: dict[str, Tensor] = {}
    try:
        with safe_open(path, "numpy") as file:
            description, expected = _description(file.metadata() or {})
            seal = _Seal(description)
            for name in sorted(file.keys()):
                value = file.get_tensor(name)
                seal.add(name, value)
                tensors[name] = torch.from_numpy(value)
    except FAULTS as error:
        raise _damaged(path, error) from None
    _check_seal(path, expected, seal)
    return description, tensors


@dataclass(frozen=True)
class SealedArrays:
    """The content of a file of sealed tensors, from one reading."""

    description: dict[str, Any]  # what `write_sealed` was given
    arrays: dict[str, np.ndarray]  # the tensors by their names
    sha256: str  # the digest of the file


def read_sealed_arrays(path: Path, prefix: str = "") -> SealedArrays:
    """Return NumPy arrays whose names begin with `prefix`; the complete file is checked."""
    if path.exists():
        check_regular(path)
    content = read_bytes(path)
    try:
        arrays = load(content)
        description, expected = _description(_metadata(content))
        seal = _Seal(description)
        for name in sorted(arrays):
            seal.add(name, arrays[name])
    except FAULTS as error:
        raise _damaged(path, error) from None
    _check_seal(path, expected, seal)
    chosen = {name: value for name, value in arrays.items() if name.startswith(prefix)}
    return SealedArrays(description, chosen, hashlib.sha256(content).hexdigest())


def _header(arrays: Mapping[str, np.ndarray], sealed: str) -> bytes:
    """Return the first bytes of a safetensors file, as the library writes them."""
    entries: dict[str, Any] = {"__metadata__": {ENTRY: sealed}}
    start = 0
    for name, value in _in_order(arrays).items():
        offsets = [start, start + value.nbytes]
        entries[name] = {
            "dtype": TYPES[str(value.dtype)],
            "shape": list(value.shape),
            "data_offsets": offsets,
        }
        start = offsets[1]
    text = json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _in_order(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return arrays in the order of the format: by type, then by name."""
    order = list(TYPES)
    return dict(sorted(arrays.items(), key=lambda item: (order.index(str(item[1].dtype)), item[0])))


def _description(metadata: Mapping[str, str]) -> tuple[dict[str, Any], str]:
    """Return the description of a file and the digest in it."""
    description: dict[str, Any] = json.loads(metadata[ENTRY])
    return description, str(description.pop("sha256"))


def _damaged(path: Path, error: Exception) -> InputError:
    return InputError(f"{path}: damaged, or not a model of fne ({error}); {repair_hint(path)}")


def _check_seal(path: Path, expected: str, seal: "_Seal") -> None:
    found = seal.hexdigest()
    if found != expected:
        raise InputError(
            f"{path}: damaged: expected {expected[:12]}…, found {found[:12]}…; {repair_hint(path)}"
        )


def _metadata(content: bytes) -> dict[str, Any]:
    """Return the metadata of a safetensors file: its header is JSON, after eight bytes with its length."""
    length = int.from_bytes(content[:8], "little")
    metadata: dict[str, Any] = json.loads(content[8 : 8 + length])["__metadata__"]
    return metadata


def read_description(path: Path) -> dict[str, Any]:
    """Return the description alone, without checking the digest of the tensors."""
    if not path.exists():
        raise missing_path(path)
    check_regular(path)
    try:
        with readable_os_errors(path), path.open("rb") as file:
            length = file.read(8)
            header = file.read(min(int.from_bytes(length, "little"), MAX_HEADER))
        found = json.loads(_metadata(length + header)[ENTRY])
        if not isinstance(found, dict):
            raise TypeError("its description is not a mapping")
        return found
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        raise InputError(f"{path}: damaged, or not a file of fne ({error})") from None


class _Seal:
    """The digest of a description and of tensors, which must be added in the order of their names."""

    def __init__(self, description: dict[str, Any]) -> None:
        self._digest = hashlib.sha256(json.dumps(description, sort_keys=True).encode())

    def add(self, name: str, value: np.ndarray) -> None:
        # With torch's names of types, as in the first files that were written.
        self._digest.update(f"{name}{value.shape}torch.{value.dtype}".encode())
        self._digest.update(value.data)

    def hexdigest(self) -> str:
        return self._digest.hexdigest()


def weights_kind(
    name: str,
    read: Callable[[Path], WeightsFile],
    opened: Callable[[Path], Artifact] | None = None,
    is_at: Callable[[Path], bool] | None = None,
) -> Kind:
    """Return the kind of files of weights; `opened` reads what a file is, where that is faster."""

    def check(path: Path, done: Done) -> Contents:
        artifact, weights = read(path)
        return Contents(artifact, faults=not_finite(path, weights))

    def describe(path: Path) -> Lines:
        artifact, weights = read(path)
        total = sum(value.size for value in weights.values())
        return summary(artifact, f"{artifact.name}, {total:,} weights", *weight_lines(weights))

    return Kind(
        name, check, lambda path: Contents(opened(path) if opened else read(path)[0]), describe, is_at
    )


def weight_lines(weights: Mapping[str, np.ndarray]) -> Lines:
    """Return the names and shapes of weights, one line each."""
    return [f"{name:<28} {tuple(value.shape)}" for name, value in sorted(weights.items())]
