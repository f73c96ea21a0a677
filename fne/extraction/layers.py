"""Where in a network its layers are. Importing this module does not import torch."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fne.extraction.settings import InputFormat

if TYPE_CHECKING:
    from torch import nn

CROP = 224  # side of a crop, in pixels
# The convolutions of each block.
VGG_CONVOLUTIONS = {"vgg16": (2, 2, 3, 3, 3), "vgg19": (2, 2, 4, 4, 4)}
# The convolutions of a block, and the blocks of each stage.
RESNET_BLOCKS = {"resnet18": (2, 2, 2, 2, 2), "resnet50": (3, 3, 4, 6, 3), "resnet152": (3, 3, 8, 36, 3)}

ModuleLister = Callable[["nn.Module"], dict[str, "nn.Module"]]


@dataclass(frozen=True)
class Tap:
    """The modules of a network that compute one layer."""

    layer: str  # its name in artifacts
    weighted: str  # the convolution or linear module
    activated: str  # the module whose output is the layer after its ReLU
    normalized: str = ""  # the normalization between the two, or an empty string
    # Whether the network reuses one ReLU module for several layers. Then `activated` is the module before the
    # ReLU, and the ReLU must still be applied.
    rectify: bool = False
    # Whether this is the output of a whole block, which ends with the ReLU of the block whether layers are
    # taken before or after their ReLU.
    block: bool = False
    features: int = 0  # the length of the layer; 0 if it is the number of filters or units of `weighted`
    positions: tuple[int, ...] = (2, 3)  # the dimensions that are averaged if the output has positions
    skipped: int = 0  # the first tokens, such as a class token, that do not stand for a position
    token: int | None = None  # the token, such as a class token, that is the layer; None: all positions
    call: int = 0  # which call of the module computes the layer, counted from 0

    @property
    def before(self) -> str:
        """The module whose output is the layer before its ReLU."""
        return self.activated if self.block else self.normalized or self.weighted


@dataclass(frozen=True)
class Backbone:
    """A network: its layers, and a function that lists its modules in order."""

    taps: tuple[Tap, ...]
    modules: ModuleLister  # in order; the name of a whole network is empty
    outputs: tuple[Tap, ...] = ()  # what can be extracted besides the layers
    side: int = CROP  # pixels per side of the network's crops
    input: InputFormat | None = None  # how the network's weights expect images, where the network says it
    # The modules, such as the classifier, whose weights a file may have and nobody needs.
    unused: tuple[str, ...] = ()
    # The version of the package that defines the network, where it decides the values of a row.
    version: dict[str, str] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """The names of the layers and of the further outputs, in the order of the network."""
        return [tap.layer for tap in (*self.taps, *self.outputs)]


def is_part(name: str, module: str) -> bool:
    """Return whether a name is a module's or that of a part of it; the whole network has no name.

    Example:
        >>> is_part("layer1.0.conv1", "layer1.0"), is_part("layer10", "layer1"), is_part("fc", "")
        (True, False, True)
    """
    return not module or name == module or name.startswith(f"{module}.")


def first_of(output: Any) -> Any:
    """Return what a module computes, without what some modules return beside it."""
    return output[0] if isinstance(output, tuple) else output


def _vgg_taps(*convolutions: int) -> tuple[Tap, ...]:
    """Return the layers of a VGG network, given its number of convolutions per block."""
    taps, index = [], 0
    for block, count in enumerate(convolutions, start=1):
        for position in range(1, count + 1):
            taps.append(_sequential(f"conv{block}_{position}", "features", index))
            index += 2
        index += 1  # the max-pool between blocks
    return (*taps, _sequential("fc6", "classifier", 0), _sequential("fc7", "classifier", 3))


def _resnet_taps(convolutions: int, *blocks: int) -> tuple[Tap, ...]:
    """Return the layers of a ResNet, given its convolutions per block and its blocks per stage.

    The last convolution of a block and the one of its shortcut have no ReLU of their own:
    the ReLU of the block follows their sum.
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


def _pool5(convolutions: int, *blocks: int) -> tuple[Tap, ...]:
    """Return the pooled output of a ResNet: the mean of the last block over all positions."""
    last = f"layer{len(blocks)}.{blocks[-1] - 1}"
    return (Tap("pool5", f"{last}.conv{convolutions}", activated=last, block=True),)


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
TAPS = {
    "alexnet": _ALEXNET_TAPS,
    **{name: _resnet_taps(*counts) for name, counts in RESNET_BLOCKS.items()},
    **{name: _vgg_taps(*counts) for name, counts in VGG_CONVOLUTIONS.items()},
}
# Outputs of a network that are extracted only where `extract.layers` names them.
OUTPUTS = {name: _pool5(*counts) for name, counts in RESNET_BLOCKS.items()}
