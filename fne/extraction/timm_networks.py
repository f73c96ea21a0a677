"""Networks of timm as backbones: `extract.backbone: timm/NAME`.

The layers are found by passing blank images through the network, on torch's device `meta`, which computes
shapes only. They are, in the order in which they are computed and under the names of their modules:

- every convolution, after the normalization and the activation function that directly follow it;
- every block with several fully connected layers, such as those of vision transformers and of ConvNeXt. A
  block is an innermost such member of a list of modules.

The values of a layer are averaged over positions or tokens; class and register tokens are not positions. The
class token of a block is a layer of its own, `BLOCK:cls`. The classifier is excluded. Where the network is
more than a sequence of modules, `pooled` is a further output: what the network itself passes to its
classifier.

timm is optional and slow to import, so it is imported only for such a backbone.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from safetensors import SafetensorError
from torch import Tensor, nn

from fne.core.errors import InputError
from fne.extraction.layers import Backbone, Tap, first_of, is_part
from fne.extraction.settings import TIMM, InputFormat

POOLED, CLS = "pooled", ":cls"
LISTS = (nn.ModuleList, nn.Sequential)
# The name of a file of weights in the format that is read here, by the name in timm's configuration.
SAFE = {
    None: "model.safetensors",
    "pytorch_model.bin": "model.safetensors",
    "open_clip_pytorch_model.bin": "open_clip_model.safetensors",
}
IMAGES = 2  # passed through the network; a layer has a row for each
# Modules of `torch.nn.modules.activation` that are not activation functions.
NO_ACTIVATIONS = (nn.MultiheadAttention, nn.Softmax, nn.Softmax2d, nn.LogSoftmax, nn.Softmin)

# A tensor and how often it was written to: in-place operations return the same tensor.
Value = tuple[int, int]


def build_timm(name: str) -> nn.Module:
    """Return a network without its classifier, in inference mode, with weights that the caller replaces."""
    timm = _import_timm()
    own = name.removeprefix(TIMM)
    if not timm.is_model(own):
        close = get_close_matches(own.partition(".")[0], timm.list_models(), n=3)
        hint = f"did you mean {' or '.join(close)}?" if close else "timm.list_models() lists all"
        raise InputError(f"timm {timm.__version__} has no network '{own}' ({hint})")
    with torch.random.fork_rng(devices=[]):
        try:
            model: nn.Module = timm.create_model(own, pretrained=False, num_classes=0)
        except RuntimeError as error:  # a tag that timm does not know
            raise InputError(f"timm {timm.__version__} cannot make '{own}': {error}") from None
    return model.eval().requires_grad_(False)


def pretrained_file(place: Path, name: str, revision: str) -> Path:
    """Return the file of the weights that the tag of a network stands for, downloaded if it is not there.

    `place` is the file that asks for them.
    """
    configuration = _import_timm().get_pretrained_cfg(name.removeprefix(TIMM))
    repository = getattr(configuration, "hf_hub_id", None)
    if not repository:
        raise InputError(
            f"{place}: timm has no weights on the hub for '{name}'; add a tag such as '.augreg_in1k' to the "
            "name, or set extract.weights to a file"
        )
    from huggingface_hub import hf_hub_download  # optional
    from huggingface_hub.errors import HfHubHTTPError

    file = SAFE.get(configuration.hf_hub_filename, configuration.hf_hub_filename)
    try:
        return Path(hf_hub_download(repository, file, revision=revision))
    except (OSError, ValueError, HfHubHTTPError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"{place}: cannot get {file} of {repository}, revision {revision} ({reason}); "
            f"download it elsewhere, save it as {place.parent / file}, and add `file: {file}` to {place}"
        ) from None


def load_pretrained(file: Path, name: str) -> dict[str, Tensor]:
    """Return the weights of a file under the names of timm, which converts those of CLIP and others."""
    overlay = {"file": str(file), "custom_load": False}
    try:
        with torch.random.fork_rng(devices=[]):
            model: nn.Module = _import_timm().create_model(
                name.removeprefix(TIMM), pretrained=True, pretrained_cfg_overlay=overlay
            )
            model.reset_classifier(0)  # type: ignore[operator]  # not before: without the classifier timm ignores missing weights
    except (RuntimeError, KeyError, SafetensorError) as error:
        raise InputError(
            f"{file}: does not fit {name} ({str(error).splitlines()[0]}); remove the file"
        ) from None
    return model.state_dict()


@cache
def open_timm(name: str) -> Backbone:
    """Find the layers of a network."""
    with torch.device("meta"):
        model = build_timm(name)
    configuration: dict[str, Any] = model.pretrained_cfg  # type: ignore[assignment]
    side, feeding = _read_input(name, configuration)
    trace = Trace(model)
    output = trace.run(side)
    taps = tuple(trace.taps())
    sequence = trace.sequence(taps)
    classifier = configuration.get("classifier") or ()
    return Backbone(
        taps,
        (lambda built: {each: built.get_submodule(each) for each in sequence or ("",)}),
        () if sequence else (Tap(POOLED, "", "", block=True, features=output.shape[1]),),
        side,
        feeding,
        (classifier,) if isinstance(classifier, str) else tuple(classifier),
        {"timm": str(_import_timm().__version__)},
    )


@dataclass
class Call:
    """One call of a module: the values of its input and output, and the output's shape."""

    name: str
    module: nn.Module
    number: int  # position among the calls of this module
    read: Value
    written: Value = (0, 0)
    shape: tuple[int, ...] = ()
    end: int = 0  # how many calls had ended before


@dataclass
class Trace:
    """The calls of modules in one forward pass."""

    model: nn.Module
    calls: list[Call] = field(default_factory=list)
    _open: list[Call] = field(default_factory=list)
    _ended: int = 0
    _alive: list[Tensor] = field(default_factory=list)  # so that no two tensors have one identity

    def run(self, side: int) -> Tensor:
        """Pass blank images through the network, and return the output."""
        handles = []
        for name, module in self.model.named_modules():
            if name:
                handles.append(module.register_forward_pre_hook(self._before(name)))
                handles.append(module.register_forward_hook(self._after))
        try:
            with torch.no_grad():
                output: Tensor = self.model(torch.zeros(IMAGES, 3, side, side, device="meta"))
        finally:
            for handle in handles:
                handle.remove()
        return output

    def taps(self) -> Iterator[Tap]:
        """Yield the layers in the order in which they are computed."""
        blocks = set(find_blocks(self.model))
        for call in sorted(self.calls, key=lambda each: each.end):
            if call.number or call.shape[:1] != (IMAGES,):
                continue  # a module that is used again is one layer, and attention heads are not images
            if isinstance(call.module, nn.Conv2d):
                yield self._convolution(call)
            elif call.name in blocks and len(call.shape) in (3, 4):
                yield from self._block(call)

    def sequence(self, taps: tuple[Tap, ...]) -> list[str]:
        """Return the innermost modules up to the last layer, if images pass through just these in turn."""
        innermost = [call for call in self.calls if not list(call.module.children())]
        names = [call.name for call in innermost]
        if taps[-1].activated not in names:
            return []
        until = names.index(taps[-1].activated) + 1
        follows = all(after.read == before.written for before, after in pairwise(innermost[:until]))
        return names[:until] if follows and len(set(names[:until])) == until else []

    def _convolution(self, convolution: Call) -> Tap:
        place = self.calls.index(convolution)
        end, normalized = convolution, ""
        normalization = self._reader(place, end.written, is_normalization)
        if normalization:
            end, normalized = normalization, normalization.name
            own = getattr(normalization.module, "act", None)
            if isinstance(own, nn.Module) and isinstance(
                getattr(normalization.module, "drop", None), nn.Module
            ):
                # timm's normalizations may hold the activation function, after a module that does nothing.
                normalized = f"{normalization.name}.drop"
        activation = self._reader(place, end.written, is_activation)
        end = activation or end
        return Tap(
            convolution.name,
            weighted=convolution.name,
            activated=end.name,
            normalized=normalized,
            features=convolution.shape[1],
            call=end.number,
        )

    def _block(self, call: Call) -> Iterator[Tap]:
        if len(call.shape) == 3:
            skipped = count_prefix(call.shape[1], int(getattr(self.model, "num_prefix_tokens", 0)))
            tap = Tap(
                call.name, "", call.name, block=True, features=call.shape[2], positions=(1,), skipped=skipped
            )
            if skipped and getattr(self.model, "cls_token", None) is not None:  # timm has it first
                yield replace(tap, layer=f"{call.name}{CLS}", token=0)
            yield tap
            return
        # The images are square, so the two equal dimensions are height and width.
        channels_last = call.shape[2] != call.shape[3]
        if call.shape[1] == call.shape[2] == call.shape[3]:
            channels_last = getattr(self.model, "output_fmt", "NCHW") == "NHWC"
        positions, features = ((1, 2), call.shape[3]) if channels_last else ((2, 3), call.shape[1])
        yield Tap(call.name, "", call.name, block=True, features=features, positions=positions)

    def _reader(self, place: int, value: Value, wanted: Any) -> Call | None:
        """Return the call of a wanted module that reads a value, after a place."""
        return next(
            (each for each in self.calls[place + 1 :] if each.read == value and wanted(each.module)), None
        )

    def _before(self, name: str) -> Any:
        def record(module: nn.Module, inputs: tuple[Any, ...]) -> None:
            value = inputs[0] if inputs and isinstance(inputs[0], Tensor) else None
            number = sum(each.name == name for each in self.calls)
            self._open.append(Call(name, module, number, _value(value)))
            self.calls.append(self._open[-1])
            if value is not None:
                self._alive.append(value)

        return record

    def _after(self, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        call = self._open.pop()
        output = first_of(output)
        if isinstance(output, Tensor):
            call.written, call.shape = _value(output), tuple(output.shape)
            self._alive.append(output)
        call.end = self._ended = self._ended + 1


def find_blocks(model: nn.Module) -> list[str]:
    """Return the innermost members of lists of modules that have several fully connected layers."""
    members = [
        f"{name}.{own}" if name else own
        for name, module in model.named_modules()
        if isinstance(module, LISTS)
        for own, child in module.named_children()
        if not isinstance(child, LISTS) and sum(isinstance(each, nn.Linear) for each in child.modules()) > 1
    ]
    return [each for each in members if not any(other != each and is_part(other, each) for other in members)]


def count_prefix(tokens: int, prefix: int) -> int:
    """Return how many of the first tokens are not positions, of a block of a network with so many in all.

    Blocks before the one that adds a class token, and those that see only it, have none.

    Example:
        >>> count_prefix(197, 1), count_prefix(196, 1), count_prefix(1, 1)
        (1, 0, 0)
    """
    return prefix if math.isqrt(tokens) ** 2 != tokens else 0


def is_normalization(module: nn.Module) -> bool:
    """Return whether a module normalizes its input; blocks that also convolve it do not count."""
    return "Norm" in type(module).__name__ and not any(isinstance(e, nn.Conv2d) for e in module.modules())


def is_activation(module: nn.Module) -> bool:
    """Return whether a module is an activation function."""
    package = type(module).__module__
    listed = package == "torch.nn.modules.activation" or package.startswith("timm.layers.activations")
    return listed and not isinstance(module, NO_ACTIVATIONS)


def _value(tensor: Tensor | None) -> Value:
    return (0, 0) if tensor is None else (id(tensor), tensor._version)


def _read_input(name: str, configuration: dict[str, Any]) -> tuple[int, InputFormat]:
    """Return the side of the crops, and how images are prepared, as a network's configuration says it."""
    _, height, width = configuration["input_size"]
    try:
        if height != width:
            raise ValueError(f"images of {width} x {height} pixels")
        return height, InputFormat(
            channels="rgb",
            range=1,
            mean=[float(each) for each in configuration["mean"]],
            deviation=[float(each) for each in configuration["std"]],
            filter=configuration["interpolation"],
            size=math.floor(height / configuration["crop_pct"]),
        )
    except (ValidationError, ValueError) as error:
        fault = error.errors()[0]["loc"][0] if isinstance(error, ValidationError) else error
        raise InputError(
            f"{name}: its configuration asks for an input that is not supported: {fault}"
        ) from None


def _import_timm() -> Any:
    try:
        import timm  # optional
    except ImportError:
        raise InputError(
            "networks of timm need timm, which is not installed; install it with pip install -e '.[timm]'"
        ) from None
    return timm
