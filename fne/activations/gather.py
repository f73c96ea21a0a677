"""From a whole image and strips back to the crops they stand for."""

from itertools import product

import torch
from torch import Tensor

from fne.activations.geometry import Frame
from fne.activations.strips import Shared, Strips


def crop_sums(shared: Shared) -> Tensor:
    """Sum each channel over all pixels of all five crops of all images, without forming a crop."""
    (outer, inner), image = shared.frames, shared.image.float()
    count, side, _, channels = image.shape
    spread = torch.tensor(shared.scale.spread(), dtype=image.dtype, device=image.device)  # (kinds, side)
    # In half precision, sums of this many values would overflow.
    with torch.autocast(image.device.type, enabled=False):
        by_column = (spread @ image.view(count, side, side * channels)).view(count, 2, side, channels)
        sums = torch.einsum("nkxc,kx->c", by_column, spread)
        sums += spread[0] @ outer.columns.float().sum(dim=(0, 1, 3))
        sums += spread[0] @ outer.rows.float().sum(dim=(0, 1, 2))
        for piece in (outer.corners, inner.columns, inner.rows, inner.corners):
            sums += piece.float().flatten(0, -2).sum(0)
    return sums


def cut(shared: Shared) -> Tensor:
    """Form the crops: (5 x images, side of a crop, side of a crop, channels)."""
    (outer, inner), (corners, middle) = shared.frames, shared.scale.frames
    crops = [_cut(shared, outer, corners, [row], [column]) for row, column in product((0, 1), repeat=2)]
    return torch.cat([*crops, _cut(shared, inner, middle, [0, 1], [0, 1])])


def _cut(shared: Shared, strips: Strips, frame: Frame, rows: list[int], columns: list[int]) -> Tensor:
    """Form the crop of each image that begins (0) or ends (1) at the named edges of a frame."""
    width, crop = shared.scale.width, shared.scale.crop
    top = frame.start if 0 in rows else 0
    left = frame.start if 0 in columns else 0
    whole = shared.image.clone()
    at = [slice(frame.start, frame.start + width), slice(frame.end - width, frame.end)]
    along = slice(frame.low, frame.high)
    for column in columns:
        whole[:, along, at[column]] = strips.columns[column]
    for row in rows:
        whole[:, at[row], along] = strips.rows[row]
    for row, column in product(rows, columns):
        whole[:, at[row], at[column]] = strips.corners[row, column]
    return whole[:, top : top + crop, left : left + crop]
