"""The model on disk: safetensors, with everything needed to use it in its header.

safetensors itself does not notice a flipped bit, so the header holds a digest of the
weights and of all else in it. The header has one entry of ours, because the order of
several would differ from run to run.
"""

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from fne.core.errors import InputError
from fne.matching.model import Matcher, Shape
from fne.store.files import file_digest, replacing
from fne.store.lineage import Artifact, Lineage, describe

FORMAT = "fne-model"
VERSION = 1


def write_model(path: Path, matcher: Matcher, settings: dict[str, Any], lineage: Lineage) -> None:
    """Write a model's weights, its shape and how it was made."""
    state = {name: value.detach().cpu().contiguous() for name, value in matcher.state_dict().items()}
    header = {
        "format": FORMAT,
        "version": VERSION,
        **describe("model", settings, lineage),
        "shape": asdict(matcher.shape),
    }
    sealed = header | {"sha256": _digest(header, state)}
    with replacing(path) as temporary:
        save_file(state, temporary, metadata={"fne": json.dumps(sealed, ensure_ascii=False)})


def read_model(path: Path) -> tuple[Matcher, Artifact]:
    """Read a model, checking its digest.

    Raises:
        InputError: if it is missing, damaged, of a newer format or not a model of ours.
    """
    header, state, expected = _read(path)
    found = _digest(header, state)
    if found != expected:
        raise InputError(
            f"{path}: damaged: expected {expected[:12]}…, found {found[:12]}…; remove it and run `dvc repro`"
        )
    matcher = Matcher(Shape(**header["shape"]))
    matcher.load_state_dict(state)
    artifact = Artifact(path, "model", file_digest(path), header["settings"], header["lineage"])
    return matcher, artifact


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor], str]:
    """Return header and weights, and the digest that they should have."""
    if not path.exists():
        raise InputError(f"{path}: no such file; run `dvc repro`, or `dvc pull` to fetch it")
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {})["fne"])
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        expected = str(header.pop("sha256"))
        version = (header["format"], header["version"])
    except (SafetensorError, OSError, KeyError, ValueError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path}: damaged or not a model of ours ({error}); remove it and run `dvc repro`"
        ) from None
    if version[0] != FORMAT or version[1] > VERSION:
        raise InputError(
            f"{path}: has format {version[0]} {version[1]}; this version reads {FORMAT} {VERSION}"
        )
    return header, state, expected


def _digest(header: dict[str, Any], state: dict[str, Tensor]) -> str:
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name, value in sorted(state.items()):
        digest.update(f"{name}{tuple(value.shape)}{value.dtype}".encode())
        digest.update(value.numpy().tobytes())
    return digest.hexdigest()
