"""Exact crop sharing: the crops of a VGG-like network without computing their overlap twice.

Each layer is computed once over the whole image (and once over its mirror image, whose
crops are the mirrored crops) and again only in strips along the crops' edges. Where the
max-pools would stop being aligned between the crops, which in VGG is after block 4, the
crops are cut out, and the rest is computed crop by crop. Sums over crops are the same
numbers in another order, so only rounding differs from the plain way.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from fne.activations.gather import crop_sums, cut
from fne.activations.geometry import Scale
from fne.activations.network import Network
from fne.activations.strips import Shared, convolved, mapped, neighborhoods, pooled, share

# The names of crops that can share, and whether the mirror image takes part.
MIRRORED = {"five": False, "ten": True}
CROPS_PER_IMAGE = 5
# Units of a fully connected layer that are computed at once.
UNITS = 256

# Batches (images, height, width, channels) with the padding that they still need, to the results' batches.
Convolve = Callable[["Step", list[tuple[Tensor, int]]], list[Tensor]]


@dataclass(frozen=True)
class Step:
    """A module of the network, with the ReLU that follows it where nobody needs what is between them."""

    module: nn.Module
    relu: bool
    kept: bool


def obstacle(network: Network, crops: str) -> str | None:
    """Say why the crops of a network cannot share, or return None if they can."""
    if crops not in MIRRORED:
        return f"crops '{crops}' do not overlap as those of {' and '.join(MIRRORED)} do"
    hidden = [name for name in _kept(network) if name not in network.modules]
    if hidden or any(tap.rectify for tap in network.taps):
        return "its layers are not one after the other"
    scale = Scale()
    for name, module in network.modules.items():
        if isinstance(module, nn.Conv2d) and is_small(module):
            if not scale.fits:
                return f"{name} is one convolution too many: crops would differ from the image everywhere"
            scale = scale.convolved()
        elif isinstance(module, nn.MaxPool2d) and _is_halving(module):
            scale = scale.pooled()
            if not scale.poolable:
                return None
        elif not isinstance(module, nn.ReLU):
            return f"{name} is neither a 3x3 convolution of stride 1, a ReLU nor a 2x2 max-pool: {module}"
    return None


def share_crops(network: Network, crops: str, convolve: Convolve) -> Callable[[Tensor], Tensor]:
    """Return a function from one prepared image (channels, side, side) to its row of features."""
    mirrored, steps = MIRRORED[crops], plan(network)

    @torch.inference_mode()
    def row(image: Tensor) -> Tensor:
        both = torch.stack([image, image.flip(-1)] if mirrored else [image])
        values: Shared | Tensor = share(both.permute(0, 2, 3, 1).contiguous())
        means = []
        for step in steps:
            values = _advance(values, step, convolve)
            if step.kept:
                means.append(_mean(values))
        return torch.cat(means)

    return row


def plan(network: Network) -> list[Step]:
    """Join each ReLU with the module before it, unless that one's own result is kept."""
    kept = set(_kept(network))
    steps = list[Step]()
    for name, module in network.modules.items():
        last = steps[-1] if steps else None
        joins = last and not last.kept and isinstance(last.module, nn.Conv2d | nn.Linear)
        if last and joins and isinstance(module, nn.ReLU):
            steps[-1] = Step(last.module, relu=True, kept=name in kept)
        else:
            steps.append(Step(module, relu=False, kept=name in kept))
    return steps


def convolve_plainly(step: Step, pieces: list[tuple[Tensor, int]]) -> list[Tensor]:
    """Convolve with what torch has for the device."""
    assert isinstance(step.module, nn.Conv2d)
    weight, bias = step.module.weight, step.module.bias
    results = []
    for piece, padding in pieces:
        values = functional.conv2d(piece.permute(0, 3, 1, 2), weight, bias, padding=padding)
        values = values.relu_() if step.relu else values
        results.append(values.permute(0, 2, 3, 1).contiguous())
    return results


def _kept(network: Network) -> list[str]:
    after = network.activations == "post_relu"
    return [tap.activated if after else tap.before for tap in network.taps]


def _advance(values: Shared | Tensor, step: Step, convolve: Convolve) -> Shared | Tensor:
    module = step.module
    if isinstance(values, Shared):
        if isinstance(module, nn.Conv2d):
            pieces = [(values.image, 1), *((piece, 0) for piece in neighborhoods(values))]
            return convolved(values, convolve(step, pieces))
        if isinstance(module, nn.MaxPool2d):
            values = pooled(values, _halve)
            return values if values.scale.poolable else cut(values).permute(0, 3, 1, 2)
        return mapped(values, torch.relu)
    if isinstance(module, nn.Conv2d) and is_small(module):
        (convolution,) = convolve(step, [(values.permute(0, 2, 3, 1).contiguous(), 1)])
        return convolution.permute(0, 3, 1, 2)
    result: Tensor = _linear(module, values) if isinstance(module, nn.Linear) else module(values)
    return result.relu_() if step.relu else result


def _linear(module: nn.Linear, values: Tensor) -> Tensor:
    if values.device.type != "cpu":
        result: Tensor = module(values)
        return result
    # In parts, because a CPU then takes two thirds of the time for a layer as large as fc6.
    parts = [functional.linear(values, weight) for weight in torch.split(module.weight, UNITS)]
    return torch.cat(parts, dim=1) + (0 if module.bias is None else module.bias)


def _mean(values: Shared | Tensor) -> Tensor:
    if isinstance(values, Shared):
        return crop_sums(values) / (CROPS_PER_IMAGE * len(values.image) * values.scale.crop**2)
    crops = values.float()
    return crops.mean(dim=(2, 3)).mean(dim=0) if crops.ndim == 4 else crops.mean(dim=0)


def _halve(piece: Tensor) -> Tensor:
    # Not max_pool2d, which refuses the empty strips of a network that begins with a pool.
    rows = torch.maximum(piece[:, ::2], piece[:, 1::2])
    return torch.maximum(rows[:, :, ::2], rows[:, :, 1::2])


def is_small(module: nn.Conv2d) -> bool:
    """Tell whether a convolution is 3 x 3 with a result of the size of its input."""
    found = (module.kernel_size, module.stride, module.padding, module.dilation, module.groups)
    return found == ((3, 3), (1, 1), (1, 1), (1, 1), 1) and module.padding_mode == "zeros"


def _is_halving(module: nn.MaxPool2d) -> bool:
    pairs = [
        value if isinstance(value, int) else tuple(value) for value in (module.kernel_size, module.stride)
    ]
    return all(pair in (2, (2, 2)) for pair in pairs) and module.padding == 0 and module.dilation == 1
