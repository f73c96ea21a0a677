"""3 x 3 convolutions on the CPU with Winograd's F(4, 3).

Every 4 x 4 pixels of a result come from 6 x 6 pixels of the input with 36 products
instead of 144 (Lavin and Gray, 2016). Filters are transformed once, in float64. The
tiles of all batches of a layer together are transformed, multiplied by the filters in
36 matrix products at once, and transformed back, with bias and ReLU on the way.
"""

import math
import threading
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fne.activations.chunks import chunks
from fne.activations.sharing import Convolve, Step, convolve_plainly, is_small

# Tiles at once. The time hardly depends on it, but the memory does: the first layers of a network
# have twenty times as many tiles as the last.
CHUNK = 512

# Rows: the points 0, 1, -1, 2, -2 and infinity of Lavin and Gray's F(4, 3).
_FILTER_TRANSFORM = (
    (1 / 4, 0, 0),
    (-1 / 6, -1 / 6, -1 / 6),
    (-1 / 6, 1 / 6, -1 / 6),
    (1 / 24, 1 / 12, 1 / 6),
    (1 / 24, -1 / 12, 1 / 6),
    (0, 0, 1),
)


class Buffers:
    """Memory that is used again: to get it anew from the system takes longer than to fill it."""

    def __init__(self) -> None:
        self._held: dict[str, Tensor] = {}
        self._turn = 0

    def borrow(self, name: str, size: int) -> Tensor:
        """Return memory that is valid until the name is borrowed again."""
        if name not in self._held or len(self._held[name]) < size:
            self._held[name] = torch.empty(size)
        return self._held[name][:size]

    def results(self, shapes: Sequence[Sequence[int]]) -> list[Tensor]:
        """Return memory for the results of a layer, valid until the layer after the next one."""
        self._turn = 1 - self._turn
        sizes = [math.prod(shape) for shape in shapes]
        parts = torch.split(self.borrow(f"results {self._turn}", sum(sizes)), sizes)
        return [part.view(*shape) for part, shape in zip(parts, shapes, strict=True)]


def transform_filters(weight: Tensor) -> Tensor:
    """Return (36, channels, filters) for the weight (filters, channels, 3, 3) of a convolution."""
    points = torch.tensor(_FILTER_TRANSFORM, dtype=torch.float64)
    transformed = torch.einsum("ia,kcab,jb->ijck", points, weight.detach().double(), points)
    return transformed.flatten(0, 1).float().contiguous()


def convolve_tiles(
    filters: Tensor, bias: Tensor, relu: bool, batches: list[tuple[Tensor, int]], buffers: Buffers
) -> list[Tensor]:
    """Convolve batches, all with the same filters.

    Args:
        filters: from `transform_filters`.
        bias: (filters,).
        relu: whether to raise negative results to zero.
        batches: each (images, height, width, channels), with the zeros to think of around its images.
        buffers: where tiles are kept meanwhile.

    Returns:
        A batch (images, height, width, filters) for each batch, in memory of `buffers`.
    """
    from fne.activations.tiles import POSITIONS, count_tiles, restore, transform

    _, channels, outputs = filters.shape
    shapes = [
        (len(batch), *(side + 2 * padding - 2 for side in batch.shape[1:3])) for batch, padding in batches
    ]
    results = buffers.results([(*shape, outputs) for shape in shapes])
    for runs in chunks([count_tiles(*shape) for shape in shapes], CHUNK):
        tiles = sum(run.last - run.first for run in runs)
        transformed = buffers.borrow("tiles", POSITIONS * tiles * channels).view(POSITIONS, tiles, channels)
        products = buffers.borrow("products", POSITIONS * tiles * outputs).view(POSITIONS, tiles, outputs)
        for run in runs:
            batch, padding = batches[run.batch]
            transform(batch.numpy(), padding, run.first, run.last, transformed.numpy(), run.offset)
        torch.bmm(transformed, filters, out=products)
        for run in runs:
            result = results[run.batch].numpy()
            restore(products.numpy(), run.offset, bias.numpy(), relu, result, run.first, run.last)
    return results


def winograd_convolve(modules: Sequence[nn.Module]) -> Convolve:
    """Return a function that convolves as the modules do, with their filters transformed beforehand.

    Convolutions whose channels do not fill a block of the compiled loops, such as the first of a
    network with its three colors, are left to torch.

    Raises:
        ImportError: if numba is missing.
    """
    from fne.activations.tiles import BLOCK

    filters = {
        module: transform_filters(module.weight)
        for module in modules
        if isinstance(module, nn.Conv2d)
        and is_small(module)
        and module.in_channels % BLOCK == 0
        and module.out_channels % BLOCK == 0
    }
    own = threading.local()  # each thread works on an image of its own

    def convolve(step: Step, batches: list[tuple[Tensor, int]]) -> list[Tensor]:
        module = step.module
        if module not in filters or not isinstance(module, nn.Conv2d):
            return convolve_plainly(step, batches)
        own.buffers = getattr(own, "buffers", None) or Buffers()
        bias = torch.zeros(module.out_channels) if module.bias is None else module.bias.detach()
        return convolve_tiles(filters[module], bias, step.relu, batches, own.buffers)

    return convolve


def numba_obstacle() -> str | None:
    """Say why the compiled loops cannot run here, or return None after they did."""
    try:
        from fne.activations.tiles import BLOCK
    except ImportError as error:
        return f"numba cannot be imported ({error})"
    try:
        filters = torch.zeros(36, BLOCK, BLOCK)
        convolve_tiles(filters, torch.zeros(BLOCK), True, [(torch.zeros(1, 4, 4, BLOCK), 1)], Buffers())
    except Exception as error:  # numba and LLVM raise errors of many types
        return f"numba cannot compile for this machine ({type(error).__name__})"
    return None
