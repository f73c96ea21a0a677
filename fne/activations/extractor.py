"""Everything that decides the row of an image: network, preprocessing, algorithm, device."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fne.activations.algorithms import ALGORITHMS, choose_algorithm
from fne.activations.network import Network, build_network
from fne.activations.resizing import RESIZES, Resize, normalize
from fne.activations.settings import PRECISIONS, Choices
from fne.activations.weights import Weights
from fne.core.errors import InputError
from fne.store.decode import DECODER_VERSION
from fne.store.layout import Layer

# Raised whenever the same image would give another row.
EXTRACTOR_VERSION = 1


@dataclass(frozen=True)
class Extractor:
    """A way from pixels to rows.

    Attributes:
        kind: everything that decides the values of a row, besides the image.
        network: the layers, with their weights.
        resize: from a decoded image to its pixels.
        rows: from prepared images (images, channels, height, width) to rows (images, features).
        device: where it computes.
    """

    kind: dict[str, Any]
    network: Network
    resize: Resize
    rows: Callable[[Tensor], Tensor]
    device: torch.device

    @property
    def layers(self) -> list[Layer]:
        """The layers of a row."""
        return self.network.layers

    @property
    def features(self) -> int:
        """The length of a row."""
        return sum(layer.features for layer in self.layers)

    @torch.inference_mode()
    def compute(self, pixels: list[Tensor]) -> np.ndarray:
        """Return the rows of images, in float32."""
        uploaded = [normalize(each.to(self.device, non_blocking=True)) for each in pixels]
        same = len({each.shape for each in uploaded}) == 1
        # Images of different sizes cannot be stacked; every image is computed by itself anyway.
        groups = [torch.stack(uploaded)] if same else [each[None] for each in uploaded]
        dtype = PRECISIONS[self.kind["precision"]]
        with torch.autocast(self.device.type, dtype, enabled=dtype != torch.float32):
            return torch.cat([self.rows(group).float() for group in groups]).cpu().numpy()


def build_extractor(
    choices: Choices,
    weights: Weights,
    algorithm: str,
    device: torch.device,
    elsewhere: bool = False,
) -> Extractor:
    """Put an extractor together.

    Args:
        choices: what decides the values of a row.
        weights: the network's.
        algorithm: how to compute, or `auto`.
        device: what computes.
        elsewhere: whether other processes compute. Then this one needs no such device and keeps
            no weights, and its extractor only tells what theirs are.

    Raises:
        InputError: if the weights do not fit, the algorithm does not apply, or half precision
            is asked for on a CPU, where it is slower and less exact.
    """
    if choices.precision != "float32" and device.type == "cpu":
        raise InputError(
            f"params.yaml: extract.precision is '{choices.precision}', which needs a GPU; use 'float32' here"
        )
    place = torch.device("meta") if elsewhere else device
    network = build_network(choices.backbone, weights, place, choices.activations)
    chosen = choose_algorithm(algorithm, network, choices.crops, device, choices.resize)
    kind = choices.model_dump(include=set(Choices.model_fields)) | {
        "weights": weights.artifact.digest,
        "algorithm": chosen,
        "device": device.type,
        "decoder": DECODER_VERSION,
        "extractor": EXTRACTOR_VERSION,
    }
    if chosen == "plain" and device.type == "cpu":
        # Only there do the last bits depend on how the work is split between threads.
        kind["threads"] = torch.get_num_threads()
    rows = _no_rows if elsewhere else ALGORITHMS[chosen](network, choices.crops)
    return Extractor(kind, network, RESIZES[choices.resize], rows, device)


def _no_rows(images: Tensor) -> Tensor:
    raise RuntimeError("this process has no weights; others compute")
