"""The plain forward pass of a backbone: the reference that faster ways are held against."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fne.activations.backbones import BACKBONES, Tap, chain
from fne.activations.weights import State, Weights
from fne.core.errors import InputError
from fne.store.layout import Layer


@dataclass(frozen=True)
class Network:
    """The modules that an image meets up to the last kept layer, and the layers kept."""

    modules: dict[str, nn.Module]
    taps: tuple[Tap, ...]
    layers: list[Layer]


def build_network(backbone: str, weights: Weights, device: torch.device) -> Network:
    """Put weights into a backbone.

    A file that has only the first layers, such as the convolutions, gives a network of
    those layers.

    Raises:
        InputError: if the weights do not fit the backbone.
    """
    with torch.device("meta"):
        model = BACKBONES[backbone].build().eval()
    _check_fit(model, backbone, weights)
    taps = _available(BACKBONES[backbone].taps, weights)
    modules = dict[str, nn.Module]()
    for name, module in chain(model).items():
        own = {key: weights.state[f"{name}.{key}"] for key, _ in module.named_parameters()}
        module.load_state_dict(own, assign=True)
        modules[name] = module.to(device).to(memory_format=torch.channels_last)
        if name == taps[-1].activated:
            break
    layers = [Layer(tap.layer, len(weights.state[f"{tap.weighted}.bias"])) for tap in taps]
    return Network(modules, taps, layers)


@torch.inference_mode()
def activations(network: Network, crops: Tensor) -> Tensor:
    """Return the activations of all kept layers, averaged over an image's crops.

    Args:
        network: the layers.
        crops: (crops, channels, height, width) of one image.

    Returns:
        One value per feature: a convolution's are averaged over the positions of the crop.
    """
    activated = {tap.activated for tap in network.taps}
    values = crops.contiguous(memory_format=torch.channels_last)
    kept = []
    for name, module in network.modules.items():
        values = module(values)
        if name in activated:
            kept.append(values.mean(dim=(2, 3)) if values.ndim == 4 else values.clone())  # (crops, features)
    return torch.cat(kept, dim=1).mean(dim=0)


def _check_fit(model: nn.Module, backbone: str, weights: Weights) -> None:
    expected = model.state_dict()
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


def _available(taps: tuple[Tap, ...], weights: Weights) -> tuple[Tap, ...]:
    has = [_has(tap, weights.state) for tap in taps]
    count = has.index(False) if False in has else len(taps)
    if count == 0 or any(has[count:]):
        lacking = taps[count]
        raise InputError(
            f"{weights.artifact.path}: lacks layer {lacking.layer} ('{lacking.weighted}.weight' and '.bias')"
        )
    return taps[:count]


def _has(tap: Tap, state: State) -> bool:
    return f"{tap.weighted}.weight" in state and f"{tap.weighted}.bias" in state
