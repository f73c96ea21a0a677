"""Tensors with a description on disk: safetensors, with a digest of our own in its header.

safetensors itself does not notice a flipped bit. The header has one entry of ours,
because the order of several would differ from run to run.

Importing torch takes longer than a whole search, which reads a model as NumPy arrays:
here it is imported only where tensors are.
"""

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError, safe_open

from fne.core.errors import InputError
from fne.store.files import replacing
from fne.store.formats import how_to_mend

if TYPE_CHECKING:
    from torch import Tensor

ENTRY = "fne"


def write_sealed(path: Path, description: dict[str, Any], tensors: "dict[str, Tensor]") -> None:
    """Write tensors and their description."""
    from safetensors.torch import save_file

    on_cpu = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    seal = _Seal(description)
    for name, value in sorted(on_cpu.items()):
        seal.add(name, value.numpy())
    sealed = description | {"sha256": seal.hexdigest()}
    with replacing(path) as temporary:
        temporary.touch()
        mode = temporary.stat().st_mode
        save_file(on_cpu, temporary, metadata={ENTRY: json.dumps(sealed, ensure_ascii=False)})
        # safetensors puts a file in its place that nobody else may read, whatever the user's mask says.
        temporary.chmod(mode)


def read_sealed(path: Path) -> "tuple[dict[str, Any], dict[str, Tensor]]":
    """Return the description and the tensors, checking their digest.

    Raises:
        InputError: if the file is missing, damaged or not one of ours.
    """
    import torch

    description, arrays = read_arrays(path)
    return description, {name: torch.from_numpy(value) for name, value in arrays.items()}


def read_arrays(path: Path, prefix: str = "") -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return what `read_sealed` does as arrays, and only those whose names begin with `prefix`.

    All of the file is checked, whatever is returned.

    Raises:
        InputError: if the file is missing, damaged or not one of ours.
    """
    if not path.exists():
        raise InputError(f"{path}: no such file; run `dvc repro`, or `dvc pull` to fetch it")
    arrays = {}
    try:
        with safe_open(path, framework="numpy") as file:
            description: dict[str, Any] = json.loads((file.metadata() or {})[ENTRY])
            expected = str(description.pop("sha256"))
            seal = _Seal(description)
            for name in sorted(file.keys()):
                array = file.get_tensor(name)
                seal.add(name, array)
                if name.startswith(prefix):
                    arrays[name] = array
    except (SafetensorError, OSError, KeyError, ValueError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: damaged or not a model of ours ({error}); {how_to_mend(path)}") from None
    found = seal.hexdigest()
    if found != expected:
        raise InputError(
            f"{path}: damaged: expected {expected[:12]}…, found {found[:12]}…; {how_to_mend(path)}"
        )
    return description, arrays


class _Seal:
    """The digest of a description and of tensors, which are added in the order of their names."""

    def __init__(self, description: dict[str, Any]) -> None:
        self._digest = hashlib.sha256(json.dumps(description, sort_keys=True).encode())

    def add(self, name: str, value: np.ndarray) -> None:
        # The name of a type is torch's, as in the files that were written first.
        self._digest.update(f"{name}{value.shape}torch.{value.dtype}".encode())
        self._digest.update(value.data)

    def hexdigest(self) -> str:
        return self._digest.hexdigest()
