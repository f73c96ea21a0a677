"""The weights of a backbone, from the file that `extract.weights` names.

The file is a YAML file that names weights (a seed, weights of torchvision, or another file), or it
contains the weights (safetensors, or a state dict saved by torch). No code in the file is executed.

How images must be fed belongs to the weights. A YAML file, torchvision, or the metadata of a file that
`fne import` converted says it. A bare file does not say it, so `extract.input` must.
"""

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any
from urllib.error import URLError
from zipfile import is_zipfile

import torch
from pydantic import Field, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor

from fne.core.errors import InputError
from fne.core.files import check_regular, file_digest, readable_os_errors, text_digest
from fne.core.settings import Section
from fne.core.stat_cache import file_state, remembered_digest
from fne.extraction.networks import build_backbone, find_backbone
from fne.extraction.settings import (
    AUTO,
    INPUTS,
    PREFIX,
    TIMM,
    TORCHVISION,
    File,
    InputFormat,
    NamedInput,
    Random,
    Timm,
    Torchvision,
    is_timm,
    named_file,
    parse_weights,
)
from fne.extraction.timm_networks import load_pretrained, pretrained_file
from fne.store.artifact import Artifact

# The entry of a safetensors file's metadata that holds a `Description` as JSON.
DESCRIPTION = "fne_weights"
MAX_HEADER = 100_000_000  # bytes, as safetensors has it
IN_TORCH_CACHE = "torch keeps this file for all programs: move it aside to download it again"

State = dict[str, Tensor]


@dataclass(frozen=True)
class Weights:
    """Tensors by name, the artifact they were read from, and how they expect images."""

    artifact: Artifact
    state: State
    input: InputFormat = TORCHVISION


class Description(Section):
    """What a converted file records of its weights: how they expect images, and the file they come from."""

    input: InputFormat
    source_sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


def load_weights(path: Path, backbone: str, wanted: str | InputFormat = AUTO) -> Weights:
    """Return the weights that `path` names or contains.

    Images are fed as `wanted` (a format, or a key of `INPUTS`) or, with `auto`, as the file or else the
    configuration of the network says. A format that contradicts the file is refused.
    """
    if not path.is_file():
        raise InputError(
            f"{path}: no such weights file; set extract.weights to a file, for example weights/random.yaml"
        )
    format_wanted = INPUTS.get(wanted) if isinstance(wanted, str) else wanted
    if path.suffix not in (".yaml", ".yml"):
        weights, recorded = _from_file(path)
        feeding = _resolve_input(path, format_wanted, recorded or find_backbone(backbone).input)
        return replace(weights, input=feeding)
    named = parse_weights(path)
    if isinstance(named, Torchvision):
        recorded = wanted if isinstance(wanted, InputFormat) else None
        loaded = _from_torchvision(path, named, backbone, recorded)
        return replace(loaded, input=_resolve_input(path, format_wanted, loaded.input))
    configured = find_backbone(backbone).input
    if isinstance(named, Timm):
        loaded = _from_timm(path, named, backbone)
        return replace(loaded, input=_resolve_input(path, format_wanted, configured))
    unsaid = configured and "input" not in named.model_fields_set
    feeding = _resolve_input(path, format_wanted, configured if unsaid else _input_format(named.input))
    if isinstance(named, File):
        return replace(_from_named_file(path, named), input=feeding)
    return Weights(_random_artifact(path, named, backbone), _draw_random(backbone, named.seed), feeding)


def has_digest(path: Path, backbone: str, digest: str) -> bool:
    """Return whether a file names or contains the weights with a digest, without loading them."""
    if path.suffix not in (".yaml", ".yml"):
        return file_digest(path) == digest
    named = parse_weights(path)
    if isinstance(named, Random):
        return _random_artifact(path, named, backbone).digest == digest
    expected = named.sha256 if isinstance(named, File) else named.sha256.get(backbone)
    # Weights of timm need no digest.
    return isinstance(named, Timm) if expected is None else digest.startswith(expected)


def read_header(path: Path) -> Weights:
    """Return the names, types and shapes of the weights in a file that is not YAML, without a digest.

    Values are not read, except in the format of torch before version 1.6.
    """
    check_regular(path)
    with _readable_weights(path):
        if path.suffix == ".safetensors":
            state = _safetensors_header(path)
        else:
            state = torch.load(path, "cpu", weights_only=True, mmap=is_zipfile(path))
    return Weights(Artifact(path, "weights", ""), _checked_state(path, state))


def says_its_input(path: Path) -> bool:
    """Return whether a weights file says how its weights expect images; reads only its header."""
    if path.suffix in (".yaml", ".yml"):
        return True
    if path.suffix != ".safetensors":
        return False
    return _read_description(path) is not None


def _random_artifact(path: Path, named: Random, backbone: str) -> Artifact:
    settings = {"kind": "random", "seed": named.seed, "untrained": True}
    return Artifact(path, "weights", text_digest(json.dumps({"backbone": backbone} | settings)), settings)


def _resolve_input(path: Path, wanted: InputFormat | None, recorded: InputFormat | None) -> InputFormat:
    if wanted is None and recorded is None:
        raise InputError(
            f"{path}: does not say how its weights expect images (channel order, range, mean); set "
            "extract.input to torchvision (RGB, 0..1, mean and deviation of ImageNet) or caffe (BGR, 0..255, "
            "mean pixel)"
        )
    if wanted is not None and recorded is not None and wanted != recorded:
        raise InputError(
            f"{path}: its weights expect {describe_input(recorded)}, but extract.input asks for "
            f"{describe_input(wanted)}; set extract.input to auto"
        )
    found = wanted or recorded
    assert found is not None
    return found


def describe_input(wanted: InputFormat) -> str:
    """Return a format as a short text.

    Example:
        >>> describe_input(TORCHVISION)
        'RGB 0..1, mean 0.485 0.456 0.406, deviation 0.229 0.224 0.225, bilinear to 256'
    """
    mean, deviation = (" ".join(f"{each:g}" for each in values) for values in (wanted.mean, wanted.deviation))
    return (
        f"{wanted.channels.upper()} 0..{wanted.range}, mean {mean}, deviation {deviation}, "
        f"{wanted.filter} to {wanted.size}"
    )


def _input_format(named: NamedInput) -> InputFormat:
    return INPUTS[named] if isinstance(named, str) else named


def _draw_random(backbone: str, seed: int) -> State:
    # He initialization from the uniform distribution: normal samples differ between CPUs.
    generator = torch.Generator().manual_seed(seed)
    if is_timm(backbone):
        return _draw_whole(build_backbone(backbone).state_dict(), generator)
    with torch.device("meta"):
        model = build_backbone(backbone)
    state = {}
    for tap in find_backbone(backbone).taps:
        for name in dict.fromkeys([tap.weighted, tap.before]):
            normalization = name != tap.weighted
            for key, value in model.get_submodule(name).state_dict().items():
                if value.ndim > 1:
                    drawn = _draw(value, generator)
                else:
                    # Biases and means are 0; scales and variances of a normalization are 1.
                    ones = normalization and key in ("weight", "running_var")
                    drawn = torch.full(value.shape, int(ones), dtype=value.dtype)
                state[f"{name}.{key}"] = drawn
    return state


def _draw_whole(expected: State, generator: torch.Generator) -> State:
    """Return values for all weights: drawn, zero (biases and means) or one (scales and variances)."""
    state = dict[str, Tensor]()
    for name, value in expected.items():
        if not value.is_floating_point():
            state[name] = value  # counts, and tables of positions
        elif value.ndim > 1:
            state[name] = _draw(value, generator)
        else:
            state[name] = torch.full(value.shape, float(not name.endswith(("bias", "mean"))))
    return state


def _draw(value: Tensor, generator: torch.Generator) -> Tensor:
    bound = math.sqrt(6 / value[0].numel())
    return torch.empty(value.shape).uniform_(-bound, bound, generator=generator)


def _from_torchvision(path: Path, named: Torchvision, backbone: str, recorded: InputFormat | None) -> Weights:
    """Return weights of torchvision; `recorded` is the input that it named when they were used before."""
    expected = named.sha256.get(backbone)
    if expected is None:
        raise InputError(
            f"{path}: has no weights for '{backbone}', only for {', '.join(named.sha256)}; "
            "set extract.weights to another file"
        )
    folder = Path(torch.hub.get_dir()) / "checkpoints"
    file = next(folder.glob(f"*-{expected[:PREFIX]}.pth"), None)
    if file is None or recorded is None:
        file, recorded = _ask_torchvision(path, named, backbone, expected, folder)
    digest, tensors = _read(file, expected)
    settings = {"kind": "torchvision", "name": named.name, "untrained": False}
    # Weights of features only have classifiers of NaN, which stand for no values.
    defined = {key: value for key, value in tensors.items() if not _is_undefined(value)}
    return Weights(Artifact(path, "weights", digest, settings), defined, recorded)


def _from_timm(path: Path, named: Timm, backbone: str) -> Weights:
    """Return the weights of the tag in a network's name, as timm converts them."""
    if not is_timm(backbone):
        raise InputError(
            f"{path}: names weights of timm, but extract.backbone is '{backbone}'; use "
            "weights/imagenet.yaml, or a network timm/NAME"
        )
    settings: dict[str, Any] = {"kind": "timm", "network": backbone.removeprefix(TIMM), "untrained": False}
    if named.file:
        file = named_file(path, named)
    else:
        file = pretrained_file(path, backbone, named.revision)
        settings["revision"] = file.parent.name  # the hub's cache has a folder per commit
    digest, expected = file_digest(file), named.sha256.get(backbone, "")
    if not digest.startswith(expected):
        raise InputError(
            f"{file}: expected SHA-256 {expected}, found {digest}; fix sha256 in {path}, or its revision"
        )
    return Weights(Artifact(path, "weights", digest, settings), load_pretrained(file, backbone))


def _ask_torchvision(
    path: Path, named: Torchvision, backbone: str, expected: str, folder: Path
) -> tuple[Path, InputFormat]:
    """Return the file of weights in a folder, downloaded if it is not there, and how they expect images."""
    from torchvision.models import get_model_weights  # torchvision: slow to import

    try:
        weights = get_model_weights(backbone)[named.name]
    except KeyError:
        raise InputError(
            f"{path}: torchvision has no weights '{named.name}' for '{backbone}'; fix the name"
        ) from None
    file = folder / weights.url.rsplit("/", 1)[1]
    try:
        if not file.is_file():
            folder.mkdir(parents=True, exist_ok=True)
            torch.hub.download_url_to_file(weights.url, str(file), expected)
    except (URLError, OSError, RuntimeError) as error:
        raise InputError(
            f"{path}: cannot download {file.name} ({error}); save the file as {file}, "
            "or set extract.weights to a weights file"
        ) from None
    return file, _from_transforms(path, named.name, weights.transforms())


def _from_transforms(path: Path, name: str, transforms: Any) -> InputFormat:
    """Return what torchvision's own preprocessing of some weights does."""
    try:
        return InputFormat(
            channels="rgb",
            range=1,
            mean=[float(each) for each in transforms.mean],
            deviation=[float(each) for each in transforms.std],
            filter=transforms.interpolation.value,
            size=int(transforms.resize_size[0]),
        )
    except (AttributeError, ValidationError) as error:
        raise InputError(
            f"{path}: cannot read how torchvision's '{name}' expects images ({type(error).__name__}); use "
            "weights for image classification"
        ) from None


def _from_named_file(path: Path, named: File) -> Weights:
    file = named_file(path, named)
    weights, recorded = _from_file(file)
    if not weights.artifact.digest.startswith(named.sha256):
        raise InputError(
            f"{file}: expected SHA-256 {named.sha256}, found {weights.artifact.digest}; "
            f"fix sha256 in {path}, or use the right file"
        )
    _resolve_input(path, _input_format(named.input), recorded)
    return weights


def _is_undefined(value: Tensor) -> bool:
    # Nearly all tensors have a number at their beginning, so that the rest need not be read.
    return bool(value.flatten()[:1].isnan().all()) and bool(value.isnan().all())


def _read_description(path: Path) -> Description | None:
    """Return what the metadata of a safetensors file says, if anything."""
    with readable_os_errors(path), path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        content = file.read(min(length, MAX_HEADER))
    try:
        header = json.loads(content)
        metadata = header.get("__metadata__") or {}
        if DESCRIPTION not in metadata:
            return None
    except (ValueError, AttributeError, TypeError):
        return None  # reading the tensors reports the fault
    try:
        return Description.model_validate_json(metadata[DESCRIPTION])
    except ValidationError as error:
        fault = error.errors()[0]
        raise InputError(
            f"{path}: its metadata describes no input ({'.'.join(map(str, fault['loc']))}: {fault['msg']}); "
            "convert the file again"
        ) from None


def _from_file(path: Path) -> tuple[Weights, InputFormat | None]:
    check_regular(path)
    digest, tensors = _read(path)
    description = _read_description(path) if path.suffix == ".safetensors" else None
    settings: dict[str, Any] = {"kind": "file", "file": path.name, "untrained": False}
    if description:
        settings["source"] = description.source_sha256
    recorded = description.input if description else None
    return Weights(Artifact(path, "weights", digest, settings), tensors), recorded


def _read(path: Path, expected: str = "") -> tuple[str, State]:
    """Return the SHA-256 of a file, which starts with `expected`, and its tensors in memory."""
    with readable_os_errors(path):
        before = file_state(path)
        digest = remembered_digest(path, before)
        if not digest.startswith(expected):
            raise InputError(f"{path}: expected SHA-256 {expected}, found {digest}; {IN_TORCH_CACHE}")
        tensors = _read_tensors(path)
        if file_state(path).identity != before.identity:
            raise InputError(f"{path}: changed while it was read; run the command again")
    return digest, tensors


def _read_tensors(path: Path) -> State:
    with _readable_weights(path):
        state = (
            load_file(path) if path.suffix == ".safetensors" else torch.load(path, "cpu", weights_only=True)
        )
    _checked_state(path, state)
    # Tensors of safetensors are pages of the file, which a later change of the file would change.
    mapped = path.suffix == ".safetensors"
    return {
        name: value.to(torch.float32 if value.is_floating_point() else value.dtype, copy=mapped)
        for name, value in state.items()
    }


def _safetensors_header(path: Path) -> State:
    with safe_open(path, framework="pt") as file:
        names: list[str] = file.keys()
        slices = {name: file.get_slice(name) for name in names}
        # A slice without rows has the type; a scalar cannot be sliced.
        return {
            name: each[:0].new_empty(shape, device="meta")
            if (shape := each.get_shape())
            else file.get_tensor(name)
            for name, each in slices.items()
        }


def _checked_state(path: Path, state: Any) -> State:
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise InputError(
            f"{path}: expected a dict of tensors, found {type(state).__name__}; use another weights file"
        )
    return state


@contextmanager
def _readable_weights(path: Path) -> Iterator[None]:
    """Turn what safetensors and torch raise for files that are not weights into an `InputError`."""
    try:
        yield
    except (SafetensorError, OSError, RuntimeError, ValueError, EOFError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(
            f"{path}: not a readable safetensors or state-dict file: {reason}; use another weights file"
        ) from None
    except Exception as error:  # torch raises many types of pickle errors for files that contain code
        raise InputError(
            f"{path}: refused, because it contains more than tensors ({type(error).__name__}); "
            "use another weights file"
        ) from None
