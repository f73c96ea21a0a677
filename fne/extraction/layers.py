"""Where in a network its layers are."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from fne.extraction.preprocess import CROP, InputFormat

ModuleLister = Callable[[nn.Module], dict[str, nn.Module]]


@dataclass(frozen=True)
class Tap:
    """The modules of a network that compute one layer.

    Attributes:
        layer: the name of the layer in artifacts.
        weighted: the convolution or linear module.
        activated: the module whose output is the layer after its ReLU.
        normalized: the normalization between the two, or an empty string.
        rectify: whether the network reuses one ReLU module for several layers. Then
            `activated` is the module before the ReLU, and the ReLU must still be applied.
        block: whether this is the output of a whole block, which ends with the ReLU of the block
            whether layers are taken before or after their ReLU.
        features: the length of the layer; 0 if it is the number of filters or units of `weighted`.
        positions: the dimensions that are averaged if the output has positions.
        skipped: the first tokens, such as a class token, that do not stand for a position.
        call: which call of the module computes the layer, counted from 0.
    """

    layer: str
    weighted: str
    activated: str
    normalized: str = ""
    rectify: bool = False
    block: bool = False
    features: int = 0
    positions: tuple[int, ...] = (2, 3)
    skipped: int = 0
    call: int = 0

    @property
    def before(self) -> str:
        """The module whose output is the layer before its ReLU."""
        return self.activated if self.block else self.normalized or self.weighted


@dataclass(frozen=True)
class Backbone:
    """A network: its layers, and a function that lists its modules in order.

    Attributes:
        taps: the layers.
        modules: lists the modules of the network in order; the name of a whole network is empty.
        outputs: what can be extracted besides the layers.
        side: of the crops that the network receives, in pixels.
        input: how the network's weights expect images, where the network says it.
        unused: the modules, such as the classifier, whose weights a file may have and nobody needs.
        version: of the package that defines the network, where that decides the values of a row.
    """

    taps: tuple[Tap, ...]
    modules: ModuleLister
    outputs: tuple[Tap, ...] = ()
    side: int = CROP
    input: InputFormat | None = None
    unused: tuple[str, ...] = ()
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
