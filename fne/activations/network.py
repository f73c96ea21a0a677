"""The plain forward pass of a backbone: the reference that faster ways are held against."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from fne.activations.backbones import BACKBONES, Tap, build_backbone
from fne.activations.weights import State, Weights
from fne.core.errors import InputError
from fne.store.layout import Layer

# Whether a layer's values are taken after its ReLU or before it.
ACTIVATIONS = ("post_relu", "pre_relu")


@dataclass(frozen=True)
class Network:
    """The modules that an image meets up to the last kept layer, and the layers kept."""

    modules: dict[str, nn.Module]
    taps: tuple[Tap, ...]
    layers: list[Layer]
    activations: str = "post_relu"

    def module(self, name: str) -> nn.Module:
        """Return a module by its name in torchvision's network, be it a piece or a part of one."""
        for piece, module in self.modules.items():
            if name == piece or name.startswith(f"{piece}."):
                return module.get_submodule(name.removeprefix(piece).removeprefix("."))
        raise KeyError(name)


def build_network(
    backbone: str, weights: Weights, device: torch.device, activations: str = "post_relu"
) -> Network:
    """Put weights into a backbone.

    A file that has only the first layers, such as the convolutions, gives a network of
    those layers.

    Raises:
        InputError: if the weights do not fit the backbone.
    """
    with torch.device("meta"):
        model = build_backbone(backbone)
    expected = model.state_dict()
    _check_fit(expected, backbone, weights)
    taps = _available(BACKBONES[backbone].taps, expected, weights)
    modules = dict[str, nn.Module]()
    for name, module in BACKBONES[backbone].pieces(model).items():
        module.load_state_dict(
            {key: weights.state[f"{name}.{key}"] for key in module.state_dict()}, assign=True
        )
        modules[name] = module.to(device).to(memory_format=torch.channels_last)
        if _is_part(taps[-1].activated, name):
            break
    layers = [Layer(tap.layer, len(weights.state[f"{tap.weighted}.weight"])) for tap in taps]
    return Network(modules, taps, layers, activations)


@torch.inference_mode()
def activations(network: Network, crops: Tensor) -> Tensor:
    """Return the activations of all kept layers, averaged over an image's crops.

    Args:
        network: the layers.
        crops: (crops, channels, height, width) of one image.

    Returns:
        One value per feature: a convolution's are averaged over the positions of the crop.
    """
    kept: dict[str, Tensor] = {}  # layer: (crops, features)
    handles = [_watch(network, tap, kept) for tap in network.taps]
    try:
        values = crops.contiguous(memory_format=torch.channels_last)
        for module in network.modules.values():
            values = module(values)
    finally:
        for handle in handles:
            handle.remove()
    return torch.cat([kept[tap.layer] for tap in network.taps], dim=1).mean(dim=0)


def _watch(network: Network, tap: Tap, kept: dict[str, Tensor]) -> RemovableHandle:
    after = network.activations == "post_relu"

    def keep(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        # At once: the next ReLU may overwrite the output, and whole maps would fill the memory.
        values = output.relu() if after and tap.rectify else output
        kept[tap.layer] = values.mean(dim=(2, 3)) if values.ndim == 4 else values.clone()

    return network.module(tap.activated if after else tap.before).register_forward_hook(keep)


def _check_fit(expected: State, backbone: str, weights: Weights) -> None:
    path = weights.artifact.path
    unknown = sorted(set(weights.state) - set(expected))
    if unknown:
        raise InputError(
            f"{path}: does not fit {backbone}: it has no '{unknown[0]}' ({len(unknown)} such names)"
        )
    for name, value in weights.state.items():
        if value.shape != expected[name].shape:
            raise InputError(
                f"{path}: does not fit {backbone}: '{name}' has shape {tuple(value.shape)}, "
                f"expected {tuple(expected[name].shape)}"
            )


def _available(taps: tuple[Tap, ...], expected: State, weights: Weights) -> tuple[Tap, ...]:
    """Return the taps whose weights are there, which must be the first ones of the network."""
    lacking = [
        [name for name in expected if _is_part(name, tap.weighted) or _is_part(name, tap.before)]
        for tap in taps
    ]
    has = [all(name in weights.state for name in names) for names in lacking]
    count = has.index(False) if False in has else len(taps)
    if count == 0 or any(has[count:]):
        missing = [name for name in lacking[count] if name not in weights.state]
        raise InputError(
            f"{weights.artifact.path}: lacks layer {taps[count].layer}: there is no '{missing[0]}'"
        )
    return taps[:count]


def _is_part(name: str, piece: str) -> bool:
    return name == piece or name.startswith(f"{piece}.")
