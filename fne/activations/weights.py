"""The weights of a backbone, from the file that `extract.weights` names.

The file is a small YAML that names weights (a seed, or torchvision's own), or holds
the weights itself (safetensors, or a state dict that torch saved). Nothing in it is
ever executed.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal
from urllib.error import URLError

import torch
from pydantic import Field, TypeAdapter, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from fne.activations.backbones import BACKBONES, build_backbone
from fne.core.errors import InputError
from fne.core.params import Section, load_params
from fne.store.files import file_digest, text_digest
from fne.store.lineage import Artifact

State = dict[str, Tensor]


@dataclass(frozen=True)
class Weights:
    """Named tensors, and the artifact they come from."""

    artifact: Artifact
    state: State


class Random(Section):
    """Untrained weights, drawn from a seed."""

    kind: Literal["random"]
    seed: Annotated[int, Field(ge=0, lt=2**32)]


class Torchvision(Section):
    """torchvision's weights of a name, with the SHA-256 of each backbone's file."""

    kind: Literal["torchvision"]
    name: str
    sha256: dict[str, str]


def load_weights(path: Path, backbone: str) -> Weights:
    """Return the weights that `path` names or holds.

    Raises:
        InputError: if the file cannot be read, or what it names cannot be had.
    """
    if not path.is_file():
        raise InputError(
            f"{path}: no such weights file; set extract.weights to a file, such as weights/random.yaml"
        )
    if path.suffix not in (".yaml", ".yml"):
        return _from_file(path)
    named = parse_weights(path)
    if isinstance(named, Random):
        settings = {"kind": "random", "seed": named.seed, "untrained": True}
        digest = text_digest(json.dumps({"backbone": backbone} | settings))
        return Weights(Artifact(path, "weights", digest, settings), _draw(backbone, named.seed))
    return _from_torchvision(path, named, backbone)


def parse_weights(path: Path) -> Random | Torchvision:
    """Read a YAML file that names weights."""
    adapter: TypeAdapter[Random | Torchvision] = TypeAdapter(
        Annotated[Random | Torchvision, Field(discriminator="kind")]
    )
    try:
        return adapter.validate_python(load_params(path))
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise InputError(f"{path}: {faults}; see weights/random.yaml and weights/imagenet.yaml") from None


def _draw(backbone: str, seed: int) -> State:
    # He's uniform distribution, not the normal one, whose values differ between kinds of CPU.
    generator = torch.Generator().manual_seed(seed)
    with torch.device("meta"):
        model = build_backbone(backbone)
    state = {}
    for tap in BACKBONES[backbone].taps:
        for name in dict.fromkeys([tap.weighted, tap.before]):
            normalization = name != tap.weighted
            for key, value in model.get_submodule(name).state_dict().items():
                if value.ndim > 1:
                    bound = math.sqrt(6 / value[0].numel())
                    drawn = torch.empty(value.shape).uniform_(-bound, bound, generator=generator)
                else:
                    # Biases and means are 0; the scales and variances of a normalization are 1.
                    ones = normalization and key in ("weight", "running_var")
                    drawn = torch.full(value.shape, int(ones), dtype=value.dtype)
                state[f"{name}.{key}"] = drawn
    return state


def _from_torchvision(path: Path, named: Torchvision, backbone: str) -> Weights:
    expected = named.sha256.get(backbone)
    if expected is None:
        raise InputError(f"{path}: names no weights for '{backbone}', only for {', '.join(named.sha256)}")
    from torchvision.models import get_model_weights  # slow to import, and rarely needed

    try:
        weights = get_model_weights(backbone)[named.name]
    except KeyError:
        raise InputError(f"{path}: torchvision has no weights '{named.name}' for '{backbone}'") from None
    file = Path(torch.hub.get_dir()) / "checkpoints" / weights.url.rsplit("/", 1)[1]
    try:
        state = weights.get_state_dict(progress=True, check_hash=True, weights_only=True)
    except (URLError, OSError, RuntimeError) as error:
        raise InputError(
            f"{path}: cannot download {file.name} ({error}); place the file at {file}, "
            "or set extract.weights to a weights file"
        ) from None
    found = file_digest(file)
    if found != expected:
        raise InputError(f"{file}: expected SHA-256 {expected}, found {found}; remove the file and try again")
    settings = {"kind": "torchvision", "name": named.name, "untrained": False}
    return Weights(Artifact(path, "weights", expected, settings), state)


def _from_file(path: Path) -> Weights:
    try:
        state = (
            load_file(path) if path.suffix == ".safetensors" else torch.load(path, "cpu", weights_only=True)
        )
    except (SafetensorError, OSError, RuntimeError, ValueError, EOFError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{path}: not a readable safetensors or state-dict file: {reason}") from None
    except Exception as error:  # torch raises pickle errors of many types for what it will not execute
        raise InputError(
            f"{path}: refused: {type(error).__name__} while reading it without executing it"
        ) from None
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise InputError(f"{path}: expected named tensors, found {type(state).__name__}")
    settings = {"kind": "file", "file": path.name, "untrained": False}
    floats = {name: value.float() if value.is_floating_point() else value for name, value in state.items()}
    return Weights(Artifact(path, "weights", file_digest(path), settings), floats)
