"""The networks whose activations are taken.

A backbone is one table entry: its layers, in the order of the network, and its pieces,
the modules that an image meets one after the other. Its layers are all convolutions
and all hidden fully connected layers, after their normalization and their ReLU where
they have them; the last layer, which names ImageNet classes, is not among them.
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

Pieces = Callable[[nn.Module], dict[str, nn.Module]]


@dataclass(frozen=True)
class Tap:
    """Where in torchvision's network to find a layer.

    Attributes:
        layer: our name of it.
        weighted: the convolution or linear map.
        activated: the module whose output is the layer after its ReLU.
        normalized: the normalization between the two, if there is one.
        rectify: whether several layers share a ReLU, so that `activated` is the module
            before it and the ReLU is still to be applied.
    """

    layer: str
    weighted: str
    activated: str
    normalized: str = ""
    rectify: bool = False

    @property
    def before(self) -> str:
        """The module whose output is the layer before its ReLU."""
        return self.normalized or self.weighted


@dataclass(frozen=True)
class Backbone:
    """A network of torchvision's, by its layers and its pieces."""

    taps: tuple[Tap, ...]
    pieces: Pieces


def build_backbone(name: str) -> nn.Module:
    """Return torchvision's network of a name, for inference."""
    # Imported here: whoever only asks for the names of backbones shall not wait for it.
    from torchvision.models import get_model

    model: nn.Module = get_model(name, weights=None)
    return model.eval()


def _vgg_pieces(model: nn.Module) -> dict[str, nn.Module]:
    features = {
        f"features.{name}": module for name, module in model.get_submodule("features").named_children()
    }
    classifier = {
        f"classifier.{name}": module for name, module in model.get_submodule("classifier").named_children()
    }
    return features | {"avgpool": model.get_submodule("avgpool"), "flatten": nn.Flatten()} | classifier


def _resnet_pieces(model: nn.Module) -> dict[str, nn.Module]:
    stem = {name: model.get_submodule(name) for name in ("conv1", "bn1", "relu", "maxpool")}
    blocks = {
        f"layer{number}.{name}": block
        for number in range(1, 5)
        for name, block in model.get_submodule(f"layer{number}").named_children()
    }
    return stem | blocks


def _vgg_taps(*convolutions: int) -> tuple[Tap, ...]:
    """Name the layers of a VGG network by its number of convolutions per block."""
    taps, index = [], 0
    for block, count in enumerate(convolutions, start=1):
        for position in range(1, count + 1):
            taps.append(_sequential(f"conv{block}_{position}", "features", index))
            index += 2
        index += 1  # the max-pool between blocks
    return (*taps, _sequential("fc6", "classifier", 0), _sequential("fc7", "classifier", 3))


def _resnet_taps(convolutions: int, *blocks: int) -> tuple[Tap, ...]:
    """Name the layers of a ResNet by its convolutions per block and its blocks per stage.

    The last convolution of a block and that of its shortcut have no ReLU of their own:
    the block's ReLU comes after their sum.
    """
    taps = [Tap("conv1", "conv1", activated="bn1", normalized="bn1", rectify=True)]
    for stage, count in enumerate(blocks, start=1):
        for block in range(count):
            prefix = f"layer{stage}.{block}"
            for number in range(1, convolutions + 1):
                normalized = f"{prefix}.bn{number}"
                name = f"conv{stage + 1}_{block + 1}_{number}"
                own_relu = number < convolutions
                taps.append(Tap(name, f"{prefix}.conv{number}", normalized, normalized, rectify=own_relu))
            if block == 0 and (stage > 1 or convolutions == 3):
                name, shortcut = f"conv{stage + 1}_{block + 1}_shortcut", f"{prefix}.downsample"
                taps.append(Tap(name, f"{shortcut}.0", f"{shortcut}.1", f"{shortcut}.1"))
    return tuple(taps)


def _sequential(layer: str, part: str, index: int) -> Tap:
    return Tap(layer, f"{part}.{index}", f"{part}.{index + 1}")


_ALEXNET_TAPS = (
    *(
        _sequential(f"conv{number}", "features", index)
        for number, index in enumerate([0, 3, 6, 8, 10], start=1)
    ),
    _sequential("fc6", "classifier", 1),
    _sequential("fc7", "classifier", 4),
)

BACKBONES = {
    "alexnet": Backbone(_ALEXNET_TAPS, _vgg_pieces),
    "resnet18": Backbone(_resnet_taps(2, 2, 2, 2, 2), _resnet_pieces),
    "resnet50": Backbone(_resnet_taps(3, 3, 4, 6, 3), _resnet_pieces),
    "vgg16": Backbone(_vgg_taps(2, 2, 3, 3, 3), _vgg_pieces),
    "vgg19": Backbone(_vgg_taps(2, 2, 4, 4, 4), _vgg_pieces),
}
