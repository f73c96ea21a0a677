"""The ways to compute the activations of images; all give the same numbers, up to rounding.

Every algorithm is called as `algorithm(network, crops)` with the name of the crops and
returns a function from prepared images (images, channels, side, side) to rows (images,
features).

Each image is computed by itself, because the blocking of matrix products, and with it
the rounding, changes with their shapes: so the numbers of an image are the same bits
whatever other images come with it. The fast algorithms give each image to a single
thread on a CPU, side by side with as many others as torch has threads; their bits do not
depend on the number of threads either.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import click
import torch
from torch import Tensor

from fne.activations.crops import CROPS
from fne.activations.network import Network, activations
from fne.activations.sharing import convolve_plainly, obstacle, share_crops
from fne.activations.winograd import numba_obstacle, winograd_convolve
from fne.core.errors import InputError

Rows = Callable[[Tensor], Tensor]
AUTO = "auto"


def plain(network: Network, crops: str) -> Rows:
    """Every crop through every layer: the reference."""
    # One image after the other: the reference keeps what passes through the network's modules.
    return lambda images: torch.stack([activations(network, CROPS[crops](image)) for image in images])


def sharing(network: Network, crops: str) -> Rows:
    """Every layer once over the image, and strips for the crops; on any device."""
    return _image_by_image(share_crops(network, crops, convolve_plainly))


def winograd(network: Network, crops: str) -> Rows:
    """Shared crops, and convolutions with a quarter of the products; on a CPU."""
    return _image_by_image(share_crops(network, crops, winograd_convolve(list(network.modules.values()))))


def choose_algorithm(
    asked: str, network: Network, crops: str, device: torch.device, resize: str = "squash"
) -> str:
    """Return the name of the algorithm to use: the one asked for, or with `auto` the fastest that applies.

    Raises:
        InputError: if the one asked for does not apply.
    """
    if asked not in (AUTO, *ALGORITHMS):
        raise InputError(f"algorithm '{asked}' is not one of {', '.join([AUTO, *ALGORITHMS])}")
    if asked == "plain":
        return asked
    reason = obstacle(network, crops)
    if resize != "squash":
        reason = f"images resized by '{resize}' are not square"
    if asked == AUTO and (reason or device.type != "cpu"):
        return "plain" if reason else "sharing"
    if reason is None and asked != "sharing":
        reason = numba_obstacle() if device.type == "cpu" else f"it needs a CPU, not '{device.type}'"
        if reason and asked == AUTO:
            _say_once(f"Algorithm 'winograd' is not possible here, using 'sharing' instead: {reason}")
            return "sharing"
    if reason:
        raise InputError(f"algorithm '{asked}' is not possible: {reason}; use 'auto'")
    return "winograd" if asked == AUTO else asked


def _image_by_image(row: Callable[[Tensor], Tensor]) -> Rows:
    workers = ThreadPoolExecutor(torch.get_num_threads(), "image", torch.set_num_threads, (1,))

    def rows(images: Tensor) -> Tensor:
        if images.device.type != "cpu":
            return torch.stack([row(image) for image in images])
        threads = torch.get_num_threads()
        # Besides each worker's own number of threads, MKL has one for all.
        torch.set_num_threads(1)
        try:
            return torch.stack(list(workers.map(row, images)))
        finally:
            torch.set_num_threads(threads)

    return rows


@cache
def _say_once(message: str) -> None:
    click.echo(message, err=True)


ALGORITHMS = {"plain": plain, "sharing": sharing, "winograd": winograd}
