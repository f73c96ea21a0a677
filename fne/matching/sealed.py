"""Tensors with a description on disk: safetensors, with a digest of our own in its header.

safetensors itself does not notice a flipped bit. The header has one entry of ours,
because the order of several would differ from run to run.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from fne.core.errors import InputError
from fne.store.files import replacing
from fne.store.formats import how_to_mend

ENTRY = "fne"


def write_sealed(path: Path, description: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Write tensors and their description."""
    on_cpu = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    sealed = description | {"sha256": _digest(description, on_cpu)}
    with replacing(path) as temporary:
        temporary.touch()
        mode = temporary.stat().st_mode
        save_file(on_cpu, temporary, metadata={ENTRY: json.dumps(sealed, ensure_ascii=False)})
        # safetensors puts a file in its place that nobody else may read, whatever the user's mask says.
        temporary.chmod(mode)


def read_sealed(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the description and the tensors, checking their digest.

    Raises:
        InputError: if the file is missing, damaged or not one of ours.
    """
    if not path.exists():
        raise InputError(f"{path}: no such file; run `dvc repro`, or `dvc pull` to fetch it")
    try:
        with safe_open(path, framework="pt") as file:
            description = json.loads((file.metadata() or {})[ENTRY])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        expected = str(description.pop("sha256"))
    except (SafetensorError, OSError, KeyError, ValueError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: damaged or not a model of ours ({error}); {how_to_mend(path)}") from None
    found = _digest(description, tensors)
    if found != expected:
        raise InputError(
            f"{path}: damaged: expected {expected[:12]}…, found {found[:12]}…; {how_to_mend(path)}"
        )
    return description, tensors


def _digest(description: dict[str, Any], tensors: dict[str, Tensor]) -> str:
    digest = hashlib.sha256(json.dumps(description, sort_keys=True).encode())
    for name, value in sorted(tensors.items()):
        digest.update(f"{name}{tuple(value.shape)}{value.dtype}".encode())
        digest.update(value.contiguous().numpy().data)
    return digest.hexdigest()
