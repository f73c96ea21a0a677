"""The extractor: everything that determines the row of an image.

It combines network, preprocessing, algorithm and device. Every entry of `ALGORITHMS` is called as
`algorithm(network, crops)` with the name of the crops. It returns a function from prepared images (images,
channels, side, side) to rows (images, features). All algorithms give the same values up to rounding.

Each image is computed separately, because the rounding of matrix products depends on their shapes. So the row
of an image has the same bits in every batch. On a CPU, the fast algorithms compute each image on a single
thread, and several images in parallel. Their bits do not depend on the number of threads either.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fne.core.device import download, is_gpu
from fne.core.errors import InputError
from fne.core.products import use_fast_linear
from fne.core.terminal import say
from fne.extraction.fast_convolutions.crop_sharing import convolve_directly, share_crops, unsupported_reason
from fne.extraction.fast_convolutions.winograd import numba_unsupported_reason, winograd_convolve
from fne.extraction.forward_pass import Network, activations, build_network, crop_activations
from fne.extraction.layers import CROP
from fne.extraction.preprocess import CROPS, Resize, normalize, resize_for
from fne.extraction.settings import AUTO, SIDE, TORCHVISION, ExtractorSettings, InputFormat, is_timm
from fne.extraction.weights import Weights
from fne.store.images import DECODER_VERSION
from fne.store.layout import Layer, view_layers

# Increased whenever the same image would give another row.
EXTRACTOR_VERSION = 1
# Increased whenever an algorithm would give other bits; without an entry, an algorithm has its first version.
ALGORITHM_VERSIONS = {"sharing": 1, "winograd": 3}
LINEAR_VERSION = 1  # fully connected layers on oneDNN
PRECISIONS = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}

RowFunction = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Extractor:
    """A function from pixels to rows."""

    kind: dict[str, Any]  # everything that determines the values of a row, apart from the image
    network: Network
    resize: Resize  # from a decoded image to its pixels
    rows: RowFunction  # from prepared images (images, channels, height, width) to rows (images, features)
    device: torch.device
    input: InputFormat = TORCHVISION
    views: int = 0  # that keep columns of their own; 0 if crops are averaged

    @property
    def layers(self) -> list[Layer]:
        """The layers of a row."""
        return view_layers(self.network.layers, self.views) if self.views else self.network.layers

    @property
    def features(self) -> int:
        """The length of a row."""
        return sum(layer.features for layer in self.layers)

    @torch.inference_mode()
    def start(self, pixels: list[Tensor]) -> Tensor:
        """Return the rows of images on the device, in float32; a GPU only queues the work."""
        prepared = [normalize(each, self.input) for each in pixels]
        same = len({each.shape for each in prepared}) == 1
        # Images of different sizes cannot be stacked; every image is computed separately anyway.
        groups = [torch.stack(prepared)] if same else [each[None] for each in prepared]
        dtype = PRECISIONS[self.kind["precision"]]
        with torch.autocast(self.device.type, dtype, enabled=dtype != torch.float32):
            return torch.cat([self.rows(group).float() for group in groups])

    def compute(self, pixels: list[Tensor]) -> np.ndarray:
        """Return the rows of images, in float32."""
        rows: np.ndarray = download(self.start([each.to(self.device) for each in pixels])).numpy()
        return rows


def build_extractor(
    settings: ExtractorSettings, weights: Weights, algorithm: str, device: torch.device, remote: bool = False
) -> Extractor:
    """Build an extractor; if `remote`, it only describes the rows that other processes compute.

    Half precision is refused on a CPU, where it is slower and less exact.
    """
    if settings.precision != "float32" and not is_gpu(device):
        raise InputError(
            f"params.yaml: extract.precision is '{settings.precision}', which needs a GPU; use 'float32' here"
        )
    if settings.precision == "bfloat16" and not remote and not torch.cuda.is_bf16_supported():
        raise InputError(
            "params.yaml: extract.precision is 'bfloat16', which this GPU does not support; use 'float16' or "
            "'float32'"
        )
    place = torch.device("meta") if remote else device
    network = build_network(settings.backbone, weights, place, settings.activations, settings.layers)
    if weights.input.size < network.side:
        raise InputError(
            f"{weights.artifact.path}: its weights expect images of {weights.input.size} pixels, but "
            f"{settings.backbone} receives crops of {network.side}; fix 'size' of its input"
        )
    chosen = choose_algorithm(
        algorithm, network, settings.crops, device, settings.resize, weights.input.size, settings.views
    )
    own = settings.model_dump(include=set(ExtractorSettings.model_fields))
    kind = own | {
        "weights": weights.artifact.digest,
        "algorithm": chosen,
        "device": device.type,
        "decoder": DECODER_VERSION,
        "extractor": EXTRACTOR_VERSION,
        "input": weights.input.model_dump(),
    }
    if chosen in ALGORITHM_VERSIONS:
        kind["algorithm_version"] = ALGORITHM_VERSIONS[chosen]
    if chosen == "plain" and not is_gpu(device):
        # Only here do the last bits depend on the number of threads.
        kind["threads"] = torch.get_num_threads()
    kind |= network.version
    if is_timm(settings.backbone) and not is_gpu(device):
        kind["fast_linear"] = LINEAR_VERSION
        for module in network.modules.values():
            use_fast_linear(module)
    views = len(CROPS[settings.crops](torch.empty(3, CROP, CROP))) if settings.views == "each" else 0
    make_rows = each_view if views else ALGORITHMS[chosen]
    rows = _no_rows if remote else make_rows(network, settings.crops)
    resize = resize_for(settings.resize, weights.input)
    return Extractor(kind, network, resize, rows, device, weights.input, views)


def choose_algorithm(
    requested: str,
    network: Network,
    crops: str,
    device: torch.device,
    resize: str = "squash",
    size: int = SIDE,
    views: str = "mean",
) -> str:
    """Return the name of the algorithm to use: the requested one, or for `auto` the fastest possible one."""
    if requested not in (AUTO, *ALGORITHMS):
        raise InputError(f"algorithm '{requested}' is not one of {', '.join([AUTO, *ALGORITHMS])}")
    if requested == "plain":
        return requested
    reason = unsupported_reason(network, crops)
    if resize != "squash":
        reason = f"images resized by '{resize}' are not square"
    elif size != SIDE:
        reason = f"the weights expect images of {size} pixels, not {SIDE}"
    elif network.side != CROP:
        reason = f"the network receives crops of {network.side} pixels, not {CROP}"
    elif views != "mean":
        reason = f"with views '{views}', crops are not averaged"
    if requested == AUTO and (reason or is_gpu(device)):
        return "plain" if reason else "sharing"
    if reason is None and requested != "sharing":
        reason = f"it needs a CPU, not '{device.type}'" if is_gpu(device) else numba_unsupported_reason()
        if reason and requested == AUTO:
            _warn_once(f"Algorithm 'winograd' is not possible here, using 'sharing' instead: {reason}")
            return "sharing"
    if reason:
        raise InputError(f"algorithm '{requested}' is not possible: {reason}; use 'auto'")
    return "winograd" if requested == AUTO else requested


def plain(network: Network, crops: str) -> RowFunction:
    """Compute every crop in every layer; this is the reference."""
    return lambda images: torch.stack(
        [activations(network, CROPS[crops](image, network.side)) for image in images]
    )


def each_view(network: Network, crops: str) -> RowFunction:
    """Compute what `plain` does, and keep the crops separate: the columns of one follow those of another."""
    return lambda images: torch.stack(
        [crop_activations(network, CROPS[crops](image, network.side)).flatten() for image in images]
    )


def sharing(network: Network, crops: str) -> RowFunction:
    """Compute every layer once per image, and strips for the crops; on any device."""
    return _per_image(share_crops(network, crops, convolve_directly))


def winograd(network: Network, crops: str) -> RowFunction:
    """Share crops, and use convolutions with a quarter of the products; on a CPU."""
    return _per_image(share_crops(network, crops, winograd_convolve(list(network.modules.values()))))


def _per_image(row: Callable[[Tensor], Tensor]) -> RowFunction:
    workers = ThreadPoolExecutor(torch.get_num_threads(), "image", torch.set_num_threads, (1,))

    def rows(images: Tensor) -> Tensor:
        if is_gpu(images.device):
            return torch.stack([row(image) for image in images])
        threads = torch.get_num_threads()
        # MKL has one global number of threads besides the number of each worker.
        torch.set_num_threads(1)
        try:
            return torch.stack(list(workers.map(row, images)))
        finally:
            torch.set_num_threads(threads)

    return rows


def _no_rows(images: Tensor) -> Tensor:
    raise RuntimeError("this process has no weights; the workers compute")


@cache
def _warn_once(message: str) -> None:
    say(message, err=True)


ALGORITHMS = {"plain": plain, "sharing": sharing, "winograd": winograd}
