"""Networks with the geometry of VGG and few channels, which are fast enough for tests."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from fne.extraction.forward_pass import Network
from fne.extraction.layers import Tap
from fne.store.layout import Layer

VGG16, VGG19 = (2, 2, 3, 3, 3), (2, 2, 4, 4, 4)


def narrow_vgg(
    blocks=VGG16, width: int = 16, units: int = 24, activations: str = "post_relu", widths=None
) -> Network:
    """Build a network, given its convolutions per block; with `units=0` it has no fully connected layers."""
    torch.manual_seed(len(blocks) * width)
    modules, taps, channels = list[nn.Module](), [], 3
    for block, count in enumerate(blocks, start=1):
        width = widths[block - 1] if widths else width
        for position in range(1, count + 1):
            convolution = nn.Conv2d(channels, width, 3, padding=1)
            nn.init.kaiming_uniform_(convolution.weight, nonlinearity="relu")
            taps.append((f"conv{block}_{position}", len(modules)))
            modules += [convolution, nn.ReLU(inplace=True)]
            channels = width
        modules.append(nn.MaxPool2d(2))
    if units:
        modules += [nn.AdaptiveAvgPool2d(7), nn.Flatten()]
        for layer, inputs in (("fc6", width * 49), ("fc7", units)):
            taps.append((layer, len(modules)))
            modules += [nn.Linear(inputs, units), nn.ReLU(inplace=True), nn.Dropout()]
    last = taps[-1][1] + 2
    named = {str(index): module.eval() for index, module in enumerate(modules[:last])}
    for module in named.values():
        module.to(memory_format=torch.channels_last).requires_grad_(False)
    return Network(
        named,
        tuple(Tap(layer, weighted=str(index), activated=str(index + 1)) for layer, index in taps),
        [Layer(layer, len(modules[index].weight)) for layer, index in taps],
        activations,
    )


def smooth_images(count: int) -> Tensor:
    """Return smooth random images (images, 3, 256, 256)."""
    coarse = torch.randn(count, 3, 40, 40, generator=torch.Generator().manual_seed(count))
    return functional.interpolate(coarse, (256, 256), mode="bicubic")


def relative_difference(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).norm() / expected.norm())
