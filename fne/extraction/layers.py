"""Where in a network its layers are."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from fne.extraction.preprocess import CROP, InputFormat

ModuleLister = Callable[[nn.Module], dict[str, nn.Module]]


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
    side: int = CROP  # of the crops that the network receives, in pixels
    input: InputFormat | None = None  # how the network's weights expect images, where the network says it
    # The modules, such as the classifier, whose weights a file may have and nobody needs.
    unused: tuple[str, ...] = ()
    # Of the package that defines the network, where that decides the values of a row.
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
