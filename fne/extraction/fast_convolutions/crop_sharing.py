"""Exact crop sharing: the crops of a VGG-like network without computing their overlap twice.

Each layer is computed once over the full image, and again only in strips along the edges of the crops. For
ten crops, the same is done for the mirror image. Where max-pools are no longer aligned between crops, in VGG
after block 4, the crops are cut out and computed one by one. Sums over crops have the same terms in another
order, so the results differ from the plain algorithm only by rounding.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor, nn
from torch.nn import functional

from fne.core.products import linear
from fne.extraction.fast_convolutions.strips import (
    Frame,
    Scale,
    SharedCrops,
    Strips,
    convolved,
    mapped,
    neighborhoods,
    pooled,
    shared_crops,
)
from fne.extraction.forward_pass import Network

# The names of crops that can be shared, and whether they include the mirror image.
MIRRORED = {"five": False, "ten": True}
CROPS_PER_IMAGE = 5


@dataclass(frozen=True)
class Step:
    """A module of the network, fused with the following ReLU if the value between them is not needed."""

    module: nn.Module
    relu: bool  # whether a ReLU follows in the same step
    kept: bool  # whether the result is a layer of the row


# From batches (images, height, width, channels), each with the padding it still needs, to result batches.
Convolve = Callable[[Step, list[tuple[Tensor, int]]], list[Tensor]]


def unsupported_reason(network: Network, crops: str) -> str | None:
    """Return why the crops of a network cannot be shared, or None if they can."""
    if crops not in MIRRORED:
        return f"it supports crops {' and '.join(repr(name) for name in MIRRORED)}, not '{crops}'"
    hidden = [name for name in _kept(network) if name not in network.modules]
    if hidden or any(tap.rectify for tap in network.taps):
        return "the layers of the network are not sequential"
    scale = Scale()
    for name, module in network.modules.items():
        if isinstance(module, nn.Conv2d) and is_same_3x3(module):
            if not scale.fits:
                return f"there are too many convolutions up to {name}: the strips of the crops would meet"
            scale = scale.convolved()
        elif isinstance(module, nn.MaxPool2d) and _is_2x2_pool(module):
            scale = scale.pooled()
            if not scale.poolable:
                return None
        elif not isinstance(module, nn.ReLU):
            return f"{name} is not a 3x3 convolution of stride 1, a ReLU or a 2x2 max-pool: {module}"
    return None


def share_crops(network: Network, crops: str, convolve: Convolve) -> Callable[[Tensor], Tensor]:
    """Return a function from one prepared image (channels, side, side) to its row (features,).

    It is for networks and crops without an `unsupported_reason`.
    """
    mirrored, steps = MIRRORED[crops], plan(network)

    @torch.inference_mode()
    def row(image: Tensor) -> Tensor:
        both = torch.stack([image, image.flip(-1)] if mirrored else [image])
        values: SharedCrops | Tensor = shared_crops(both.permute(0, 2, 3, 1).contiguous())
        means = []
        for step in steps:
            values = _advance(values, step, convolve)
            if step.kept:
                means.append(_mean(values))
        return torch.cat(means)

    return row


def plan(network: Network) -> list[Step]:
    """Fuse each ReLU with the module before it, unless the result of that module is a layer."""
    kept = set(_kept(network))
    steps = list[Step]()
    for name, module in network.modules.items():
        last = steps[-1] if steps else None
        fusible = last and not last.kept and isinstance(last.module, nn.Conv2d | nn.Linear)
        if last and fusible and isinstance(module, nn.ReLU):
            steps[-1] = Step(last.module, relu=True, kept=name in kept)
        else:
            steps.append(Step(module, relu=False, kept=name in kept))
    return steps


def convolve_directly(step: Step, pieces: list[tuple[Tensor, int]]) -> list[Tensor]:
    """Convolve with torch's implementation for the device."""
    assert isinstance(step.module, nn.Conv2d)
    weight, bias = step.module.weight, step.module.bias
    results = []
    for piece, padding in pieces:
        values = functional.conv2d(piece.permute(0, 3, 1, 2), weight, bias, padding=padding)
        values = values.relu_() if step.relu else values
        results.append(values.permute(0, 2, 3, 1).contiguous())
    return results


def crop_sums(shared: SharedCrops) -> Tensor:
    """Sum each channel over all pixels of all five crops of all images, without cutting out a crop."""
    (outer, inner), image = shared.frames, shared.image.float()
    count, side, _, channels = image.shape
    coverage = torch.tensor(shared.scale.coverage(), dtype=image.dtype, device=image.device)  # (kinds, side)
    # In half precision, sums of this many values would overflow.
    with torch.autocast(image.device.type, enabled=False):
        by_column = (coverage @ image.view(count, side, side * channels)).view(count, 2, side, channels)
        sums = torch.einsum("nkxc,kx->c", by_column, coverage)
        sums += coverage[0] @ outer.columns.float().sum(dim=(0, 1, 3))
        sums += coverage[0] @ outer.rows.float().sum(dim=(0, 1, 2))
        for piece in (outer.corners, inner.columns, inner.rows, inner.corners):
            sums += piece.float().flatten(0, -2).sum(0)
    return sums


def cut_crops(shared: SharedCrops) -> Tensor:
    """Return the crops as (5 x images, side of a crop, side of a crop, channels)."""
    (outer, inner), (corners, center) = shared.frames, shared.scale.frames
    crops = [_cut(shared, outer, corners, [row], [column]) for row, column in product((0, 1), repeat=2)]
    return torch.cat([*crops, _cut(shared, inner, center, [0, 1], [0, 1])])


def is_same_3x3(module: nn.Conv2d) -> bool:
    """Return whether a convolution is 3 x 3 and its result has the size of its input."""
    found = (module.kernel_size, module.stride, module.padding, module.dilation, module.groups)
    return found == ((3, 3), (1, 1), (1, 1), (1, 1), 1) and module.padding_mode == "zeros"


def _kept(network: Network) -> list[str]:
    after = network.activations == "post_relu"
    return [tap.activated if after else tap.before for tap in network.taps]


def _advance(values: SharedCrops | Tensor, step: Step, convolve: Convolve) -> SharedCrops | Tensor:
    module = step.module
    if isinstance(values, SharedCrops):
        if isinstance(module, nn.Conv2d):
            pieces = [(values.image, 1), *((piece, 0) for piece in neighborhoods(values))]
            return convolved(values, convolve(step, pieces))
        if isinstance(module, nn.MaxPool2d):
            values = pooled(values, _halve)
            return values if values.scale.poolable else cut_crops(values).permute(0, 3, 1, 2)
        return mapped(values, torch.relu)
    if isinstance(module, nn.Conv2d) and is_same_3x3(module):
        (convolution,) = convolve(step, [(values.permute(0, 2, 3, 1).contiguous(), 1)])
        return convolution.permute(0, 3, 1, 2)
    result = linear(values, module.weight, module.bias) if isinstance(module, nn.Linear) else module(values)
    return result.relu_() if step.relu else result


def _mean(values: SharedCrops | Tensor) -> Tensor:
    if isinstance(values, SharedCrops):
        return crop_sums(values) / (CROPS_PER_IMAGE * len(values.image) * values.scale.crop**2)
    crops = values.float()
    return crops.mean(dim=(2, 3)).mean(dim=0) if crops.ndim == 4 else crops.mean(dim=0)


def _halve(piece: Tensor) -> Tensor:
    # Not max_pool2d, which refuses the empty strips of a network that starts with a pool.
    rows = torch.maximum(piece[:, ::2], piece[:, 1::2])
    return torch.maximum(rows[:, :, ::2], rows[:, :, 1::2])


def _cut(shared: SharedCrops, strips: Strips, frame: Frame, rows: list[int], columns: list[int]) -> Tensor:
    """Cut out the crop of each image that starts (0) or ends (1) at the given edges of a frame."""
    width, crop = shared.scale.width, shared.scale.crop
    top = frame.start if 0 in rows else 0
    left = frame.start if 0 in columns else 0
    image = shared.image.clone()
    at = [slice(frame.start, frame.start + width), slice(frame.end - width, frame.end)]
    along = slice(frame.low, frame.high)
    for column in columns:
        image[:, along, at[column]] = strips.columns[column]
    for row in rows:
        image[:, at[row], along] = strips.rows[row]
    for row, column in product(rows, columns):
        image[:, at[row], at[column]] = strips.corners[row, column]
    return image[:, top : top + crop, left : left + crop]


def _is_2x2_pool(module: nn.MaxPool2d) -> bool:
    pairs = [
        value if isinstance(value, int) else tuple(value) for value in (module.kernel_size, module.stride)
    ]
    return all(pair in (2, (2, 2)) for pair in pairs) and module.padding == 0 and module.dilation == 1
