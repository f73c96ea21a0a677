"""The plain forward pass of a backbone, which is the reference for the faster algorithms."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from fne.core.errors import InputError
from fne.extraction.layers import CROP, Backbone, Tap, first_of, is_part
from fne.extraction.networks import build_backbone, find_backbone
from fne.extraction.settings import ALL, is_timm
from fne.extraction.weights import State, Weights
from fne.store.layout import Layer

# Whether the values of a layer are taken after its ReLU or before it.
ACTIVATIONS = ("post_relu", "pre_relu")
# All layers of a backbone, without its further outputs.


@dataclass(frozen=True)
class Network:
    """The modules up to the last available layer, and the layers."""

    modules: dict[str, nn.Module]  # by name, in the order in which an image passes through them
    taps: tuple[Tap, ...]  # where in the modules the layers are
    layers: list[Layer]  # in the same order
    activations: str = "post_relu"  # an entry of `ACTIVATIONS`
    side: int = CROP  # pixels per side of the network's crops
    # The version of the package that defines the network, where it decides the values of a row.
    version: dict[str, str] = field(default_factory=dict)

    def module(self, name: str) -> nn.Module:
        """Return a module, or a submodule of one, by its name in the whole network."""
        parent = self.parent(name)
        return self.modules[parent].get_submodule(name.removeprefix(parent).removeprefix("."))

    def parent(self, name: str) -> str:
        """Return the name of the module that is, or contains, the one with a name in the whole network."""
        for parent in self.modules:
            if is_part(name, parent):
                return parent
        raise KeyError(name)


def build_network(
    backbone: str,
    weights: Weights,
    device: torch.device,
    activations: str = "post_relu",
    layers: str | Sequence[str] = ALL,
) -> Network:
    """Load weights into a backbone; refuse weights that do not fit.

    Weights that cover only the first layers, such as the convolutions, give a network of those layers.
    `layers` are `all`, or the names of some layers and further outputs of the backbone.
    """
    known = find_backbone(backbone)
    weights = _without_unused(known, weights)
    # Networks of timm may hold values that are computed when they are built, and are in no weights file.
    with device if is_timm(backbone) else torch.device("meta"):
        model = build_backbone(backbone)
    taps = _fitting_taps(backbone, known, model.state_dict(), weights, layers)
    modules = dict[str, nn.Module]()
    for name, module in known.modules(model).items():
        prefix = f"{name}." if name else ""
        module.load_state_dict(
            {key: _placed(weights.state[f"{prefix}{key}"], device) for key in module.state_dict()},
            assign=True,
        )
        # A network of timm may have tensors that no weights file has.
        modules[name] = module.to(device) if is_timm(backbone) else module
        if is_part(taps[-1].activated, name):
            break
    kept = [Layer(tap.layer, tap.features or len(weights.state[f"{tap.weighted}.weight"])) for tap in taps]
    return Network(modules, taps, kept, activations, known.side, known.version)


def refuse_unfitting(backbone: str, weights: Weights, layers: str | Sequence[str] = ALL) -> None:
    """Refuse weights that `build_network` would refuse, by their names, shapes and types alone."""
    known = find_backbone(backbone)
    with torch.device("cpu" if is_timm(backbone) else "meta"):
        expected = build_backbone(backbone).state_dict()
    _fitting_taps(backbone, known, expected, _without_unused(known, weights), layers)


@torch.inference_mode()
def activations(network: Network, crops: Tensor) -> Tensor:
    """Return the activations of all layers for one image, averaged over its crops (features,)."""
    return crop_activations(network, crops).mean(dim=0)


@torch.inference_mode()
def crop_activations(network: Network, crops: Tensor) -> Tensor:
    """Return the activations of all layers for each crop of one image (crops, channels, height, width).

    Returned are (crops, features). The values of a convolution are averaged over the positions of the crop.
    """
    values = crops.contiguous(memory_format=torch.channels_last)
    _, kept = run_modules(network, values, list(network.modules))
    return concatenate_layers(network, kept)


def run_modules(network: Network, values: Tensor, names: Sequence[str]) -> tuple[Tensor, dict[str, Tensor]]:
    """Pass values through some modules; return their output, and the layers in them (crops, features)."""
    kept: dict[str, Tensor] = {}  # layer: (crops, features)
    handles = [_register_hook(network, tap, kept) for tap in network.taps]
    try:
        for name in names:
            values = network.modules[name](values)
    finally:
        for handle in handles:
            handle.remove()
    return values, kept


def concatenate_layers(network: Network, kept: Mapping[str, Tensor]) -> Tensor:
    """Return the activations of all layers (crops, features)."""
    return torch.cat([kept[tap.layer] for tap in network.taps], dim=1)


def _placed(weight: Tensor, device: torch.device) -> Tensor:
    """Return a weight on the device; filters have their channels last there, as images have."""
    placed = weight.to(device)
    return placed.contiguous(memory_format=torch.channels_last) if placed.ndim == 4 else placed


def _register_hook(network: Network, tap: Tap, kept: dict[str, Tensor]) -> RemovableHandle:
    after = network.activations == "post_relu"
    calls = count()

    def keep(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor | tuple[Tensor, ...]) -> None:
        if next(calls) != (tap.call if after else 0):
            return
        # Averaged immediately: the next ReLU may overwrite the output, and full maps need much memory.
        kept[tap.layer] = layer_values(tap, output, after)

    return network.module(tap.activated if after else tap.before).register_forward_hook(keep)


def layer_values(tap: Tap, output: Tensor | tuple[Tensor, ...], rectified: bool = True) -> Tensor:
    """Return the values of a layer (crops, features), given the output of its module."""
    values: Tensor = first_of(output)
    if rectified and tap.rectify:
        values = values.relu()
    if values.ndim == 3:
        values = values[:, tap.skipped :] if tap.token is None else values[:, tap.token]
    return values.mean(dim=tap.positions) if values.ndim > 2 else values.clone()


def _without_unused(backbone: Backbone, weights: Weights) -> Weights:
    """Return weights without those of the classifier, where the network is built without it."""
    if not backbone.unused:
        return weights
    used = {
        name: value
        for name, value in weights.state.items()
        if not any(is_part(name, module) for module in backbone.unused)
    }
    return replace(weights, state=used)


def _fitting_taps(
    backbone: str, known: Backbone, expected: State, weights: Weights, layers: str | Sequence[str]
) -> tuple[Tap, ...]:
    """Return the taps of the layers, after checking that the weights fit."""
    _check_fit(expected, backbone, weights)
    if is_timm(backbone):
        _check_complete(expected, backbone, weights)
    taps = _available(known.taps, expected, weights)
    return taps if layers == ALL else _named(backbone, known, layers, taps, expected, weights)


def _check_complete(expected: State, backbone: str, weights: Weights) -> None:
    missing = [name for name in expected if name not in weights.state]
    if missing:
        raise InputError(
            f"{weights.artifact.path}: does not fit {backbone}: '{missing[0]}' is missing "
            f"({len(missing)} missing names); set extract.backbone and extract.weights to the same network"
        )


def _check_fit(expected: State, backbone: str, weights: Weights) -> None:
    path = weights.artifact.path
    unknown = sorted(set(weights.state) - set(expected))
    if unknown:
        raise InputError(
            f"{path}: does not fit {backbone}, which has no '{unknown[0]}' ({len(unknown)} unknown names); "
            "set extract.backbone and extract.weights to the same network"
        )
    for name, value in weights.state.items():
        if value.shape != expected[name].shape:
            raise InputError(
                f"{path}: does not fit {backbone}: '{name}' has shape {tuple(value.shape)}, "
                f"expected {tuple(expected[name].shape)}; "
                "set extract.backbone and extract.weights to the same network"
            )
        if expected[name].is_floating_point() and not value.is_floating_point():
            raise InputError(
                f"{path}: '{name}' has values of type {str(value.dtype).removeprefix('torch.')}, expected "
                "floating-point numbers; quantized weights are not supported, use another weights file"
            )


def _available(taps: tuple[Tap, ...], expected: State, weights: Weights) -> tuple[Tap, ...]:
    """Return the taps that have weights, which must be the first ones of the network."""
    needed = [
        [name for name in expected if is_part(name, tap.weighted) or is_part(name, tap.before)]
        for tap in taps
    ]
    has = [all(name in weights.state for name in names) for names in needed]
    first = has.index(False) if False in has else len(taps)
    if first == 0 or any(has[first:]):
        missing = [name for name in needed[first] if name not in weights.state]
        raise InputError(
            f"{weights.artifact.path}: layer {taps[first].layer} is incomplete: '{missing[0]}' is missing; "
            "use another weights file"
        )
    return taps[:first]


def _named(
    backbone: str,
    known: Backbone,
    names: str | Sequence[str],
    available: tuple[Tap, ...],
    expected: State,
    weights: Weights,
) -> tuple[Tap, ...]:
    """Return the taps of some layers and further outputs, in the order of the network."""
    whole = [
        tap
        for tap in known.outputs
        if all(name in weights.state for name in expected if is_part(name, tap.activated))
    ]
    usable = {tap.layer: tap for tap in (*available, *whole)}
    for name in names:
        if name not in known.names:
            raise InputError(
                f"params.yaml: extract.layers: {backbone} has no layer '{name}'; it has "
                f"{', '.join(known.names)}"
            )
        if name not in usable:
            raise InputError(
                f"{weights.artifact.path}: does not cover layer '{name}' of extract.layers; it covers "
                f"{', '.join(usable)}"
            )
    return tuple(tap for name, tap in usable.items() if name in names)
