"""The networks whose activations are taken.

A backbone is one table entry: how torchvision builds it, and which of its layers are
kept, in the order of the network. Kept are all convolutions and all hidden fully
connected layers, after their ReLU; the last layer, which names ImageNet classes, is not.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torchvision
from torch import nn


@dataclass(frozen=True)
class Tap:
    """A layer to keep: the torchvision module with its weights, and the one after its ReLU."""

    layer: str
    weighted: str
    activated: str


@dataclass(frozen=True)
class Backbone:
    """A network of torchvision's that is one chain of modules."""

    build: Callable[[], nn.Module]
    taps: tuple[Tap, ...]


def chain(model: nn.Module) -> dict[str, nn.Module]:
    """Return the modules of a VGG-like network by name, in the order in which an image meets them."""
    features = {
        f"features.{index}": module for index, module in enumerate(model.get_submodule("features").children())
    }
    classifier = {
        f"classifier.{index}": module
        for index, module in enumerate(model.get_submodule("classifier").children())
    }
    return features | {"avgpool": model.get_submodule("avgpool"), "flatten": nn.Flatten()} | classifier


def _vgg_taps(*convolutions: int) -> tuple[Tap, ...]:
    """Name the layers of a VGG network by its number of convolutions per block."""
    taps, index = [], 0
    for block, count in enumerate(convolutions, start=1):
        for position in range(1, count + 1):
            taps.append(_tap(f"conv{block}_{position}", "features", index))
            index += 2
        index += 1  # the max-pool between blocks
    return (*taps, _tap("fc6", "classifier", 0), _tap("fc7", "classifier", 3))


def _tap(layer: str, part: str, index: int) -> Tap:
    return Tap(layer, f"{part}.{index}", f"{part}.{index + 1}")


_ALEXNET_TAPS = (
    *(_tap(f"conv{number}", "features", index) for number, index in enumerate([0, 3, 6, 8, 10], start=1)),
    _tap("fc6", "classifier", 1),
    _tap("fc7", "classifier", 4),
)

BACKBONES = {
    "alexnet": Backbone(torchvision.models.alexnet, _ALEXNET_TAPS),
    "vgg16": Backbone(torchvision.models.vgg16, _vgg_taps(2, 2, 3, 3, 3)),
    "vgg19": Backbone(torchvision.models.vgg19, _vgg_taps(2, 2, 4, 4, 4)),
}
